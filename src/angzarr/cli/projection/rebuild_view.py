"""How a rebuild goes and how it ended, for people and programs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from angzarr.cli.dlq.entry_view import draws
from angzarr.projections.rebuild import Ending, RebuildStanding, RebuildStopped
from angzarr.projections.shadow_table import Compared, Failure
from angzarr.projections.shadow_table import Progress as SoFar
from angzarr.runtime.log_throttle import LogThrottle
from angzarr.runtime.text import printable

#: Seconds between two lines where there is no bar.
_NOW_AND_THEN: Final = 10.0
#: Failures that people are shown.
_SHOWN: Final = 20

Tell = Callable[[RebuildStanding], object]


@contextmanager
def bar(*, quiet: bool) -> Iterator[Tell]:
    """Give what is told how far a rebuild is: a bar on a terminal, else a line at times."""
    console = Console(stderr=True)
    if quiet or not draws(console):
        yield _lines()
        return
    columns = (
        TextColumn("rebuilding"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        TextColumn("[red]{task.fields[failed]}"),
    )
    rate = _Rate()
    with Progress(*columns, console=console) as shown:
        task = shown.add_task("", total=None, rate="", failed="")

        def tell(standing: RebuildStanding) -> None:
            done, total, failed = standing
            said = f"{failed:,} failed" if failed else ""
            shown.update(task, completed=done, total=total, rate=rate.of(done), failed=said)

        yield tell


def print_begun(progress: SoFar) -> None:
    """Say that a rebuild goes on, if it does."""
    if progress.resumed:
        since = f"{progress.started_at:%Y-%m-%d %H:%M} UTC"
        said = f"going on with the rebuild of {since}, which has {progress.events:,} events"
        click.echo(said, err=True)


def print_ending(ending: Ending, name: str) -> None:
    """Say how a rebuild ended."""
    if isinstance(ending, RebuildStopped):
        kept = (
            ", all of which are kept; run it again to go on, or with --abandon to remove them"
            if ending.kept
            else "; nothing was compared, and nothing of it is kept"
        )
        click.echo(f"stopped after {ending.events:,} events{kept}")
    elif isinstance(ending, Compared):
        _print_compared(ending, name)
    else:
        click.echo(f"{name} is rebuilt from {ending.events:,} events")
        _print_failures(ending.failures)


def is_good(ending: Ending) -> bool:
    """Tell whether nothing is left to do."""
    if isinstance(ending, Compared):
        return not (ending.differing or ending.failures or ending.unknown)
    return not isinstance(ending, RebuildStopped) and not ending.failures


def ending_json(ending: Ending) -> dict[str, Any]:
    """Return how a rebuild ended, for programs."""
    if isinstance(ending, RebuildStopped):
        return {"stopped": True, "events": ending.events}
    if isinstance(ending, Compared):
        differing = {
            table: {"live": live, "rebuilt": rebuilt}
            for table, (live, rebuilt) in ending.differing.items()
        }
        return {
            "equal": not (differing or ending.renumbered),
            "rows": ending.rows,
            "differing": differing,
            "failures": _failures_json(ending.failures),
            "events_in_no_book": ending.unknown,
            "renumbered": list(ending.renumbered),
        }
    failures = _failures_json(ending.failures)
    return {"stopped": False, "events": ending.events, "failures": failures}


def _failures_json(failures: tuple[Failure, ...]) -> list[dict[str, Any]]:
    return [{**one._asdict(), "address": one.address._asdict()} for one in failures]


def _print_compared(compared: Compared, name: str) -> None:
    for table, (live, rebuilt) in compared.differing.items():
        click.echo(f"{table} differs: {live:,} rows live, {rebuilt:,} rebuilt")
    _print_failures(compared.failures)
    if compared.unknown:
        click.echo(
            f"the live one has effects of {compared.unknown:,} events that are in no event book"
        )
    left_out = ", ".join(compared.renumbered)
    if compared.failures or compared.unknown:
        click.echo("the rebuilt one is incomplete, so a difference says nothing against the live")
    elif compared.differing:
        click.echo("run it again without --verify to put the rebuilt one in its place")
    elif left_out:
        click.echo(
            f"{name} is what the event books say, but for {left_out}, which are not compared"
            " because the database numbers them"
        )
    else:
        click.echo(f"{name} is what the event books say: {compared.rows:,} rows are equal")
    if left_out and not is_good(compared):
        click.echo(f"not compared, for the database numbers them: {left_out}")


def _print_failures(failures: tuple[Failure, ...]) -> None:
    if not failures:
        return
    stay = "aggregate stays" if len(failures) == 1 else "aggregates stay"
    click.echo(f"{len(failures):,} {stay} at an event that failed:", err=True)
    for one in failures[:_SHOWN]:
        said = f"  {one.address} at {one.sequence}, {one.event_type} {one.event_id}: {one.error}"
        click.echo(printable(said), err=True)
    if len(failures) > _SHOWN:
        click.echo(f"  and {len(failures) - _SHOWN:,} more", err=True)


def _lines() -> Tell:
    seldom, rate = LogThrottle(_NOW_AND_THEN, time.monotonic), _Rate()
    seldom.now()  # what takes no longer needs no line

    def tell(standing: RebuildStanding) -> None:
        if seldom.now():
            done, total, failed = standing
            more = f", {failed:,} failed" if failed else ""
            click.echo(f"rebuilding: {done:,} of about {total:,}, {rate.of(done)}{more}", err=True)

    return tell


class _Rate:
    """Events a second since the run began; what was there before does not count."""

    def __init__(self) -> None:
        self._begun: tuple[float, int] | None = None

    def of(self, done: int) -> str:
        now = time.monotonic()
        since, before = self._begun = self._begun or (now, done)
        return f"{(done - before) / max(now - since, 1e-3):,.0f}/s"
