"""angzarr demo: publishes events, shows how they are handled, and accounts for each of them."""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NoReturn

import click
from rich.console import Console

from angzarr.analysis.ledger.ledger import Ledger
from angzarr.cli.terminal import draws
from angzarr.demo import run as demo_run
from angzarr.demo import workers as demo_servers
from angzarr.demo.chains import ChainScript
from angzarr.demo.invoices import BillingScript
from angzarr.demo.run import Places, Run, check_name
from angzarr.demo.script import DemoScript, EventScript, Item, ScriptResult, of_examples, of_file
from angzarr.demo.view import View
from angzarr.demo.workers import DemoFleet, EmbeddedFleet, ProcessFleet
from angzarr.errors import ConfigurationError, Unavailable
from angzarr.wiring import stores as wiring

#: Seconds between two looks at journal and ledger.
_LOOK: Final = 0.25
#: Deliveries after which a worker is killed: it is warm, and most of its work is to come.
_AMID: Final = 60


class Course:
    """Publishes, watches and judges one run; `go` once.

    With *kill*, the worker is killed amid its work, and another one started.
    """

    def __init__(
        self,
        script: DemoScript,
        console: Console,
        *,
        plain: bool,
        timeout: float,
        kill: bool = False,
    ) -> None:
        self._script = script
        self._run: Run = script.app.run
        self._console = console
        self._timeout = timeout
        self._kill = kill
        self._view = View(console, _title(self._run, script.what), plain=plain)

    def go(self) -> ScriptResult:
        """Run everything and return how it ended; raises AngzarrError where a server is away."""
        app, script = self._script.app, self._script
        demo_servers.check(app)
        ledger = app.ops.open_ledger()
        try:
            with self._fleet() as fleet, self._view:
                self._watch(fleet, ledger)
            script.look(ledger)
            result = script.result()
        finally:
            ledger.close()
            demo_servers.clean(app)
        self._console.print(self._view.final(script.tally, script.entries, "done"))
        return result

    @contextmanager
    def _fleet(self) -> Iterator[DemoFleet]:
        publisher = self._script.publisher
        fleet: DemoFleet = (
            EmbeddedFleet(self._script.app, self._run)
            if self._run.embedded
            else ProcessFleet(self._run, os.environ)
        )
        try:
            fleet.start()
            publisher.start()
            yield fleet
        finally:
            if publisher.is_alive():
                publisher.stop()
            fleet.stop()

    def _watch(self, fleet: DemoFleet, ledger: Ledger) -> None:
        """Look until everything has ended and is reported, or the time is up."""
        script, publisher = self._script, self._script.publisher
        end = time.monotonic() + self._timeout
        while time.monotonic() < end:
            fleet.check()
            if publisher.error is not None:
                raise publisher.error
            publishing = publisher.is_alive()
            self._kill_once(fleet)
            with suppress(Unavailable):  # a look is missed, nothing else
                script.look(ledger)
            left = script.left()
            doing = "publishing" if publishing else f"{left} still under way"
            self._view.show(script.tally, script.entries, doing)
            if not publishing and left == 0:
                return
            time.sleep(_LOOK)

    def _kill_once(self, fleet: DemoFleet) -> None:
        if self._kill and self._script.tally.outcomes.total() >= _AMID:
            self._kill = False
            fleet.kill()
            self._console.print("a worker was killed; another one is starting")


def _title(run: Run, what: str) -> str:
    from kombu.utils.url import maybe_sanitize_url

    how = "all in this process" if run.embedded else f"on {maybe_sanitize_url(run.broker)}"
    return f"angzarr demo {run.id}: {what}, {how}"


#: Events of the built-in traffic.
COUNT: Final = 300
#: Commands of an example; each leads to about ten deliveries.
COMMANDS: Final = 100


@click.command()
@click.option(
    "--count",
    type=click.IntRange(1),
    help=f"Events to publish  [default: {COUNT}, or all of --events], or commands or invoices"
    f" of --example  [default: {COMMANDS}]",
)
@click.option(
    "--example",
    metavar="NAME",
    help="Run another example instead: poker or orders (commands, sagas and compensations), or"
    " billing (pinned prices, and what failures cost).",
)
@click.option(
    "--events",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help='Publish these: a JSON object {"type", "data"} on each line.',
)
@click.option(
    "--seed",
    type=int,
    default=1,
    show_default=True,
    help="The same seed, the same events and failures.",
)
@click.option(
    "--broker",
    default="memory://",
    show_default=True,
    help="URL of the broker; a real one gets real worker processes.",
)
@click.option("--store", help="URL of the claim store  [default: the broker's Redis, else SQLite]")
@click.option(
    "--dlq",
    "dead_letters",
    help="kafka://host:port, amqp://…, sqs://region?endpoint=…, sns-sqs://region?endpoint=…,"
    " pubsub://project or channel  [default: the broker]",
)
@click.option("--ledger", help="URL of the ledger's database  [default: SQLite]")
@click.option(
    "--books",
    help="URL of the event books of --example; workers on a real broker share"
    " postgresql+psycopg://…  [default: SQLite]",
)
@click.option(
    "--kill",
    is_flag=True,
    help="Kill the worker of --example amid its work and start another one; for a real broker.",
)
@click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep journal, SQLite files and logs here  [default: a temporary folder]",
)
@click.option(
    "--plain", is_flag=True, help="Print lines instead of a live table, as without a terminal."
)
@click.option(
    "--timeout",
    type=click.FloatRange(1),
    default=120,
    show_default=True,
    help="Seconds after which what still waits counts as unaccounted for.",
)
def demo(
    *,
    count: int | None,
    example: str | None,
    events: Path | None,
    seed: int,
    broker: str,
    store: str | None,
    dead_letters: str | None,
    ledger: str | None,
    books: str | None,
    kill: bool,
    folder: Path | None,
    plain: bool,
    timeout: float,
) -> None:
    """Run the whole road: publish, handle, fail, retry, dead-letter, replay, and account for it.

    Without options it needs no server. Exits with 1 and a list if anything is unaccounted for.
    """
    _check(example, broker=broker, events=events, books=books, kill=kill)
    signal.signal(signal.SIGTERM, _terminated)
    run_id = uuid.uuid4().hex[:8]
    with _folder(folder, run_id) as where:
        items = of_file(events, run_id, count) if events else []
        run = Run(
            id=run_id,
            folder=str(where),
            broker=broker,
            seed=seed,
            types=sorted({item.type for item in items}),
            example=example or "",
        )
        letters = demo_servers.dead_letter_settings(dead_letters)
        demo_run.write(run, Places(store=store, dlq=letters, ledger=ledger, books=books))
        _enter(demo_run.environment(run))
        script = _script(run, items, count)
        console = Console(width=None if sys.stdout.isatty() else 140)
        plain = plain or not draws(console)
        result = Course(script, console, plain=plain, timeout=timeout, kill=kill).go()
        _leave(run, result, console, kept=folder is not None)


def _check(
    example: str | None, *, broker: str, events: Path | None, books: str | None, kill: bool
) -> None:
    """Refuse options that do not go together; raises ConfigurationError, UsageError."""
    if example is None:
        if books or kill:
            msg = "--books and --kill are for an --example"
            raise click.UsageError(msg)
        return
    check_name(example)
    if events is not None:
        msg = "--events and --example exclude each other: an example makes its own traffic"
        raise click.UsageError(msg)
    embedded = wiring.is_embedded(broker)
    if kill and embedded:
        msg = "--kill needs a worker process to kill: name a real broker with --broker"
        raise click.UsageError(msg)
    has_books = demo_run.EXAMPLES[example].books
    if has_books and not embedded and (books is None or books.startswith(("sqlite", "memory"))):
        msg = (
            "workers on a real broker share their event books, which SQLite and memory cannot:"
            " say --books postgresql+psycopg://host/database"
        )
        raise ConfigurationError(msg)


def _script(run: Run, items: list[Item], count: int | None) -> DemoScript:
    """The script to run, once the environment is that of *run*."""
    app = importlib.import_module("angzarr.demo.app").app
    app.journal.create()
    if run.example:
        script = ChainScript if demo_run.EXAMPLES[run.example].books else BillingScript
        return script(app, count or COMMANDS)
    return EventScript(app, items or of_examples(run.id, count or COUNT, run.seed))


class Terminated(SystemExit):
    """SIGTERM came."""


def _terminated(_signal: int, _frame: object) -> NoReturn:
    """Let SIGTERM unwind, so that workers are stopped."""
    raise Terminated(128 + signal.SIGTERM)


@contextmanager
def _folder(parent: Path | None, run_id: str) -> Iterator[Path]:
    """Make a folder for the run that only this user may read: URLs hold passwords.

    A temporary one is removed if the run could not take place.
    """
    if parent is not None:
        made = parent.absolute() / f"run-{run_id}"
        made.mkdir(mode=0o700, parents=True)
        yield made
        return
    made = Path(tempfile.mkdtemp(prefix=f"angzarr-demo-{run_id}-"))
    try:
        yield made
    except (ConfigurationError, Unavailable, KeyboardInterrupt, Terminated):
        shutil.rmtree(made, ignore_errors=True)
        raise


def _enter(environment: dict[str, str]) -> None:
    """Make *environment* this process's own: the app reads it as any user's app does."""
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    os.environ.update(environment)


def _leave(run: Run, result: ScriptResult, console: Console, *, kept: bool) -> None:
    for line in result.lines():
        console.print(
            line, style=None if result.adds_up else "bold red", highlight=False, soft_wrap=True
        )
    if kept or not result.adds_up:
        console.print(f"Journal, databases and logs: {run.folder}", highlight=False, soft_wrap=True)
    else:
        shutil.rmtree(run.path, ignore_errors=True)
    if not result.adds_up:
        raise SystemExit(1)
