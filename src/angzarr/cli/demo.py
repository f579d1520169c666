"""angzarr demo: publish events, watch them handled, failed and healed, then account for each."""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import sys
import tempfile
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NoReturn

import click
from rich.console import Console

from angzarr.analysis.ledger import LONGEST_PAGE, EntryFilter, Ledger
from angzarr.cli import demo_run, demo_servers
from angzarr.cli.demo_account import Account, Entry, Tally, account, waiting
from angzarr.cli.demo_fleet import EmbeddedFleet, Fleet, ProcessFleet
from angzarr.cli.demo_journal import Pair
from angzarr.cli.demo_run import Run
from angzarr.cli.demo_traffic import Item, Publisher, of_examples, of_file
from angzarr.cli.demo_view import View, summary
from angzarr.errors import Unavailable
from angzarr.facts import Fact

#: Events of the built-in traffic.
COUNT: Final = 300
#: Seconds between two looks at journal and ledger.
_LOOK: Final = 0.25
#: Seconds in which the last facts reach their database.
_FACTS: Final = 5.0
_FACTS_PAGE: Final = 1000


@click.command()
@click.option(
    "--count",
    type=click.IntRange(1),
    help=f"Events to publish  [default: {COUNT}, or all of --events]",
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
    help="kafka://host:port, amqp://…, sqs://region?endpoint=… or channel  [default: the broker]",
)
@click.option("--ledger", help="URL of the ledger's database  [default: SQLite]")
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
    events: Path | None,
    seed: int,
    broker: str,
    store: str | None,
    dead_letters: str | None,
    ledger: str | None,
    folder: Path | None,
    plain: bool,
    timeout: float,
) -> None:
    """Run the whole road: publish, handle, fail, retry, dead-letter, replay, and account for it.

    Without options it needs no server. Exits with 1 and a list if anything is unaccounted for.
    """  # fmt: skip
    signal.signal(signal.SIGTERM, _terminated)
    run_id = uuid.uuid4().hex[:8]
    where = _folder(folder, run_id)
    items = of_file(events, run_id, count) if events else []
    run = Run(
        id=run_id,
        folder=str(where),
        broker=broker,
        seed=seed,
        types=sorted({item.type for item in items}),
    )
    letters = demo_servers.dead_letter_settings(dead_letters)
    demo_run.write(run, store=store, dlq=letters, ledger=ledger)
    _enter(demo_run.environment(run))
    app = importlib.import_module("angzarr.cli.demo_app").app
    app.journal.create()
    items = items or of_examples(run_id, count or COUNT, seed)
    console = Console(width=None if sys.stdout.isatty() else 140)
    result = Demo(app, items, console, plain=plain or not console.is_terminal, timeout=timeout).go()
    _leave(run, result, console, kept=folder is not None)


def _terminated(_signal: int, _frame: object) -> NoReturn:
    """Let SIGTERM unwind, so that workers are stopped."""
    raise SystemExit(128 + signal.SIGTERM)


def _folder(parent: Path | None, run_id: str) -> Path:
    """Return a new folder for the run that nobody else may read: URLs hold passwords."""
    if parent is None:
        return Path(tempfile.mkdtemp(prefix=f"angzarr-demo-{run_id}-"))
    made = parent.absolute() / f"run-{run_id}"
    made.mkdir(mode=0o700, parents=True)
    return made


def _enter(environment: dict[str, str]) -> None:
    """Make *environment* this process's own: the app reads it as any user's app does."""
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    os.environ.update(environment)


def _leave(run: Run, result: Account, console: Console, *, kept: bool) -> None:
    for line in summary(result):
        console.print(
            line, style=None if result.adds_up else "bold red", highlight=False, soft_wrap=True
        )
    if kept or not result.adds_up:
        console.print(f"Journal, databases and logs: {run.folder}", highlight=False, soft_wrap=True)
    else:
        shutil.rmtree(run.path, ignore_errors=True)
    if not result.adds_up:
        raise SystemExit(1)


class Demo:
    """One run, from the first event to the account."""

    def __init__(
        self, app: Any, items: list[Item], console: Console, *, plain: bool, timeout: float
    ) -> None:
        self._app = app
        self._run: Run = app.run
        self._console = console
        self._timeout = timeout
        self._tally = Tally()
        self._entries: dict[Pair, Entry] = {}
        self._publisher = Publisher(app, items, self._run.seed)
        self._view = View(console, _title(self._run, len(items)), plain=plain)

    def go(self) -> Account:
        """Run everything and return the account; raises AngzarrError where a server is away."""
        demo_servers.check(self._app)
        ledger = self._app.open_ledger()
        try:
            with self._fleet() as fleet, self._view:
                self._watch(fleet, ledger)
            self._look(ledger)
            facts = self._facts()
        finally:
            ledger.close()
            demo_servers.clean(self._app)
        self._console.print(self._view.final(self._tally, self._entries, "done"))
        return account(self._tally, self._entries, facts)

    @contextmanager
    def _fleet(self) -> Iterator[Fleet]:
        fleet: Fleet = (
            EmbeddedFleet(self._app, self._run)
            if self._run.embedded
            else ProcessFleet(self._run, os.environ)
        )
        try:
            fleet.start()
            self._publisher.start()
            yield fleet
        finally:
            if self._publisher.is_alive():
                self._publisher.stop()
            fleet.stop()

    def _watch(self, fleet: Fleet, ledger: Ledger) -> None:
        """Look until everything is at its end and told, or the time is up."""
        end = time.monotonic() + self._timeout
        while time.monotonic() < end:
            fleet.check()
            if self._publisher.error is not None:
                raise self._publisher.error
            publishing = self._publisher.is_alive()
            with suppress(Unavailable):  # a look is missed, nothing else
                self._look(ledger)
            left = waiting(self._tally, self._entries)
            doing = "publishing" if publishing else f"{left} still under way"
            self._view.show(self._tally, self._entries, doing)
            if not publishing and left == 0:
                return
            time.sleep(_LOOK)

    def _look(self, ledger: Ledger) -> None:
        self._tally.add(self._app.journal.read(self._tally.last))
        self._entries = _entries(ledger, self._app.dead_letter_domains(), self._run.id)

    def _facts(self) -> dict[Pair, Counter[str]]:
        """Return the outcomes that the facts tell of, once the last ones are written."""
        from angzarr.adapters.sql.facts import SqlFactLog

        log = SqlFactLog(self._run.facts)
        try:
            end = time.monotonic() + _FACTS
            while True:
                found = _outcomes(log)
                judged = account(self._tally, self._entries, found)
                if judged.adds_up or time.monotonic() > end:
                    return found
                time.sleep(_LOOK)
        finally:
            log.close()


def _entries(ledger: Ledger, domains: list[str], run_id: str) -> dict[Pair, Entry]:
    """Return what the ledger says of the run's pairs."""
    found: dict[Pair, Entry] = {}
    for domain in domains:
        after, more = "", True
        while more:
            page = ledger.get_failed_events(
                EntryFilter(domain=domain), status=None, limit=LONGEST_PAGE, after=after
            )
            for entry in page.entries:
                if entry.event_id.startswith(f"{run_id}:"):
                    pair = Pair(entry.handler_name, entry.event_id)
                    found[pair] = Entry(status=entry.status, replays=entry.replays)
            after, more = page.next, bool(page.next)
    return found


def _outcomes(log: Any) -> dict[Pair, Counter[str]]:
    """Return how often the facts tell of each outcome of each pair."""
    told: dict[Pair, Counter[str]] = defaultdict(Counter)
    page: list[Fact] = log.read(limit=_FACTS_PAGE)
    while page:
        for fact in page:
            pair = Pair(fact.tool_id or "", str(fact.data.get("event_id")))
            told[pair][str(fact.data.get("outcome"))] += 1
        page = log.read(after=page[-1].id, limit=_FACTS_PAGE)
    return told


def _title(run: Run, count: int) -> str:
    from kombu.utils.url import maybe_sanitize_url

    how = "all in this process" if run.embedded else f"on {maybe_sanitize_url(run.broker)}"
    return f"angzarr demo {run.id}: {count} events, {how}"
