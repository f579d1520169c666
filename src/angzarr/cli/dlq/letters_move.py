"""angzarr dlq move and export: letters out of one queue into another, or into a file.

How a transfer of letters goes and how it ended, for people and programs.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from angzarr.cli.dlq.letter_acts import recording_letters
from angzarr.cli.dlq.letters_file import (
    APP,
    NAMES,
    LetterFile,
    carry_to,
    check_two_places,
    chosen_domains,
    find_place,
    opened_queue,
)
from angzarr.cli.terminal import JSON, YES, draws, print_json, standard_output
from angzarr.clock import SystemClock
from angzarr.dead_letters.queue import DeadLetterQueue
from angzarr.dead_letters.transfer import (
    Carry,
    MoveAccount,
    MoveCourse,
    Transfer,
    carry_into,
    waiting,
)
from angzarr.facts.act import ActKind
from angzarr.runtime.failures import LogThrottle
from angzarr.runtime.text import printable
from angzarr.wiring.analysis_worker import stopped_by_signal

#: Seconds between two lines where there is no bar.
_NOW_AND_THEN: Final = 10.0
#: Letters that stayed, of which people are told.
_SHOWN: Final = 20

Tell = Callable[[int], None]


@contextmanager
def progress(doing: str, total: int | None, *, bar: bool, what: str = "letters") -> Iterator[Tell]:
    """Give a function that shows how many were taken: a bar on a terminal, else a line at times."""
    console = Console(stderr=True)
    if not (bar and draws(console)):
        yield _lines(doing, total, what)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as shown:
        task = shown.add_task(doing, total=total)
        yield lambda taken: shown.update(task, completed=taken, total=_at_least(total, taken))


def print_account(
    account: MoveAccount, *, done: str, stopped: bool, as_json: bool, err: bool = False
) -> None:
    """Print how the letters ended; *done* is the word for it."""
    if as_json:
        print_json(account_json(account, stopped=stopped))
        return
    of = ", ".join(f"{printable(name)} {count}" for name, count in sorted(account.carried.items()))
    click.echo(f"{done} {account.carried.total()} letters{f': {of}' if of else ''}", err=err)
    if account.unreadable:
        click.echo(f"{account.unreadable} of them cannot be read as letters", err=err)
    if account.kept:
        click.echo(f"{len(account.kept)} letters stay where they were:", err=err)
        print_reasons(account.kept, err=err)
    if stopped:
        click.echo("stopped; run it again for the rest", err=err)
    elif account.remaining:
        click.echo(
            f"about {account.remaining} letters are still there, in other hands or new:"
            " run it again for them",
            err=err,
        )


def print_reasons(reasons: Mapping[Any, str], *, err: bool) -> None:
    """Print why letters were not taken, by name, the first of them."""
    for name, why in list(reasons.items())[:_SHOWN]:
        click.echo(f"  {printable(name)}: {printable(why)}", err=err)
    if len(reasons) > _SHOWN:
        click.echo(f"  and {len(reasons) - _SHOWN} more", err=err)


def account_json(account: MoveAccount, *, stopped: bool) -> dict[str, Any]:
    """The *account* for programs."""
    return {
        "carried": account.carried.total(),
        "domains": dict(sorted(account.carried.items())),
        "unreadable": account.unreadable,
        "kept": account.kept,
        "remaining": account.remaining,
        "stopped": stopped,
    }


def _lines(doing: str, total: int | None, what: str) -> Tell:
    seldom = LogThrottle(_NOW_AND_THEN, time.monotonic)
    seldom.now()  # what takes no longer needs no line

    def tell(taken: int) -> None:
        if seldom.now():
            of = f" of about {_at_least(total, taken)}" if total is not None else ""
            click.echo(f"{doing}: {taken}{of} {what}", err=True)

    return tell


def _at_least(total: int | None, taken: int) -> int | None:
    return None if total is None else max(total, taken)


#: Takes the account of a move, to say in the facts how it ended.
TellMoved: TypeAlias = Callable[[MoveAccount], None]
_F = TypeVar("_F", bound=Callable[..., Any])

_RATE: Final = re.compile(r"(\d+(?:\.\d+)?)(?:/s)?")
#: Letters a second; with fewer, a receiver would count as dead.
_SLOWEST: Final = 0.1


class Rate(click.ParamType[float]):
    """Letters a second: ``50`` or ``50/s``."""

    name = "n/s"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number."""
        found = _RATE.fullmatch(str(value))
        if not found or float(found[1]) < _SLOWEST:
            self.fail(
                f"{value!r} is not a rate: write letters a second, from 0.1, e.g. 50/s", param, ctx
            )
        return float(found[1])


_OPTIONS: Final = (
    click.option("--from", "source", required=True, metavar="URL", help=f"Where from: {NAMES}"),
    click.option("--domain", "domains", multiple=True, help="Whose letters; repeatable."),
    click.option("--all-domains", is_flag=True, help="Those of all domains of the app."),
    click.option("--limit", type=click.IntRange(1), help="No more letters than these."),
    click.option("--group", help="Kafka's consumer group, instead of the analysis worker's."),
    JSON,
)


def _out_of_a_queue(command: _F) -> _F:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command()
@_out_of_a_queue
@click.option("--to", "target", required=True, metavar="URL", help="Where to, named alike.")
@click.option("--rate", type=Rate(), help="Letters a second; default: as fast as it goes.")
@click.option("--dry-run", is_flag=True, help="Only look, and give everything back.")
@YES
@click.pass_obj
def move(
    app_name: str | None,
    /,
    *,
    source: str,
    target: str,
    domains: tuple[str, ...],
    all_domains: bool,
    limit: int | None,
    rate: float | None,
    group: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Move dead letters from one queue to another.

    A letter is let go at its source once the destination has confirmed it. Run it again where it
    was stopped. Exits with 1 if letters stayed or it was stopped.
    """
    places = find_place(source, app_name), find_place(target, app_name)
    check_two_places(*places)
    _check_group(places[0].backend, source, group)
    chosen = chosen_domains(domains, all_domains=all_domains, app_name=app_name)
    if not (dry_run or yes):
        what = f"Move the letters of {', '.join(chosen)} from {places[0].shown}"
        click.confirm(f"{what} to {places[1].shown}?", abort=True, err=True)
    course = MoveCourse(domains=chosen, limit=limit, rate=rate, take_away=not dry_run)
    run = partial(_run, course=course, as_json=as_json)
    moved = {"from": places[0].shown, "to": places[1].shown}
    recording = _recording(app_name, ActKind.LETTERS_MOVED, moved)
    with opened_queue(source, places[0], app_name, group=group) as queue:
        if dry_run:
            run(queue, _look, doing="looking at", done="would move")
            return
        with opened_queue(target, places[1], app_name) as into:
            run(queue, carry_into(into), doing="moving", done="moved", recording=recording)


@click.command()
@_out_of_a_queue
@click.option("--to", "target", default="-", metavar="FILE", help="A new file; -: standard output.")
@click.option("--drain", is_flag=True, help="Take away what is written; needs a file.")
@click.option("--append", is_flag=True, help="Write behind what the file holds.")
@click.pass_obj
def export(
    app_name: str | None,
    /,
    *,
    source: str,
    target: str,
    domains: tuple[str, ...],
    all_domains: bool,
    limit: int | None,
    group: str | None,
    drain: bool,
    append: bool,
    as_json: bool,
) -> None:
    """Write dead letters as lines of JSON; they stay in their queue unless --drain is said.

    With --drain a letter is let go once its line is on the disk. What was filed already is in the
    ledger: `angzarr ledger export` writes entries and, with --letters, lines like these.
    """
    if target == "-" and (drain or as_json):
        msg = "--drain and --json need a file: name one with --to"
        raise click.UsageError(msg)
    place = find_place(source, app_name)
    _check_group(place.backend, source, group)
    chosen = chosen_domains(domains, all_domains=all_domains, app_name=app_name)
    course = MoveCourse(domains=chosen, limit=limit, take_away=drain)
    run = partial(_run, course=course, as_json=as_json, doing="exporting", done="exported")
    with opened_queue(source, place, app_name, group=group) as queue:
        if target == "-":
            run(queue, partial(carry_to, standard_output()), err=True)
            return
        drained = {"from": place.shown, "to": target}
        recording = _recording(app_name if drain else None, ActKind.LETTERS_DRAINED, drained)
        with LetterFile(Path(target), append=append) as file:
            run(queue, file.carry, recording=recording)


def _run(
    source: DeadLetterQueue,
    carry: Carry,
    *,
    course: MoveCourse,
    doing: str,
    done: str,
    as_json: bool,
    err: bool = False,
    recording: AbstractContextManager[TellMoved] | None = None,
) -> None:
    """Carry letters, showing how it goes, and tell at the end; exits with 1 unless all went.

    *recording* lends what is told how it ended, also where that was half-way.
    """
    total = waiting(source, course.domains)
    if total is not None and course.limit is not None:
        total = min(total, course.limit)
    with stopped_by_signal() as stop:
        lent = recording or nullcontext(_tell_nothing)
        with lent as record, progress(doing, total, bar=not as_json) as tell:
            transfer = Transfer(
                source,
                carry,
                course,
                clock=SystemClock(),
                stop=stop.is_set,
                tell=lambda account: tell(account.taken),
            )
            account = transfer.account
            try:
                transfer.run()
            except BaseException:  # who is stopped half-way needs to know what was done
                print_account(account, done=done, stopped=True, as_json=as_json, err=err)
                raise
            finally:
                record(account)
        print_account(account, done=done, stopped=stop.is_set(), as_json=as_json, err=err)
        if account.kept or account.remaining or stop.is_set():
            raise SystemExit(1)


@contextmanager
def _recording(
    app_name: str | None, kind: ActKind, where: Mapping[str, str]
) -> Iterator[TellMoved]:
    with recording_letters(app_name, kind, where["from"]) as carried:

        def tell(account: MoveAccount) -> None:
            told = account_json(account, stopped=False)
            del told["kept"], told["stopped"]
            carried({**where, **told, "kept": len(account.kept)})

        yield tell


def _tell_nothing(_account: MoveAccount) -> None:
    """Leave no fact: letters were only looked at, or copied."""


def _look(receipts: Sequence[Any]) -> list[str | None]:
    """Carry nothing anywhere."""
    return [None] * len(receipts)


def _check_group(backend: str, source: str, group: str | None) -> None:
    if group and (backend != "kafka" or source == APP):
        msg = "--group is Kafka's: name the source as kafka://…"
        raise click.UsageError(msg)
