"""angzarr projection rebuild: builds a read model again from the event books (spec P4)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from angzarr.cli.application import load_application
from angzarr.cli.terminal import JSON, YES, draws, print_json
from angzarr.clock import SystemClock
from angzarr.facts.act import ActKind
from angzarr.projections.rebuild import BATCH, Ending, Rebuild, RebuildStanding, RebuildStopped
from angzarr.projections.shadow_table import Compared, Failure, Plan, SwitchedOver
from angzarr.projections.shadow_table import Progress as SoFar
from angzarr.runtime.failures import LogThrottle
from angzarr.runtime.text import printable
from angzarr.wiring.analysis_worker import person, stopped_by_signal
from angzarr.wiring.operations import Operations
from angzarr.wiring.projections import Site, open_site

#: Seconds between two lines where there is no bar.
_NOW_AND_THEN: Final = 10.0
#: Failures that people are shown.
_SHOWN: Final = 20

Tell = Callable[[RebuildStanding], object]


@contextmanager
def bar(*, quiet: bool) -> Iterator[Tell]:
    """Give a function that shows a rebuild's progress: a bar on a terminal, else lines at times."""
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
    """True if nothing is left to do."""
    if isinstance(ending, Compared):
        return not (ending.differing or ending.failures or ending.unknown)
    return not isinstance(ending, RebuildStopped) and not ending.failures


def ending_json(ending: Ending) -> dict[str, Any]:
    """The end of a rebuild, for programs."""
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
    """Events a second since the run began; earlier ones do not count."""

    def __init__(self) -> None:
        self._begun: tuple[float, int] | None = None

    def of(self, done: int) -> str:
        now = time.monotonic()
        since, before = self._begun = self._begun or (now, done)
        return f"{(done - before) / max(now - since, 1e-3):,.0f}/s"


_IN_PLACE: Final = (
    "Empty the live read model and fill it again: readers see it grow. For read models that are no"
    " tables of the database of the order."
)


@click.command()
@click.argument("name")
@click.option("--throttle", type=click.FloatRange(0, min_open=True), metavar="N",
              help="No more than N events a second.")  # fmt: skip
@click.option("--batch", type=click.IntRange(1, 100_000), default=BATCH, show_default=True,
              help="Events of one transaction.")  # fmt: skip
@click.option("--in-place", is_flag=True, help=_IN_PLACE)
@click.option("--keep-going", is_flag=True, help="Let an event that fails stop its aggregate only.")
@click.option("--force", is_flag=True, help="Give up effects of events that are in no event book.")
@click.option("--verify", is_flag=True, help="Compare with the live read model, which stays.")
@click.option("--abandon", is_flag=True, help="Remove what an unfinished rebuild has made.")
@YES
@JSON
@click.pass_obj
def rebuild(
    app_name: str | None,
    /,
    *,
    name: str,
    in_place: bool,
    verify: bool,
    abandon: bool,
    yes: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Rebuild the projection NAME from the event books, while live events go on.

    It goes on with one that was stopped or killed. Readers see the old read model until the new
    one is in its place. Exits with 1 if it was stopped, if events failed, or if --verify finds a
    difference.
    """
    if verify and (abandon or in_place):
        raise click.UsageError("--verify goes with neither --abandon nor --in-place")
    ops = load_application(app_name)
    with open_site(ops, name, in_place=in_place) as site:
        if abandon:
            _abandon(ops, site, name, yes=yes)
            return
        if not (yes or verify):
            click.confirm(_question(name, in_place=in_place), abort=True, err=True)
        run = partial(_run, site, verify=verify, options=options, as_json=as_json)
        ending = run() if verify else _recorded(ops, site.plan, run, in_place=in_place, **options)
    _finish(ending, name, as_json=as_json)


def _recorded(
    ops: Operations, plan: Plan, run: Callable[[], Ending], *, in_place: bool, **options: Any
) -> Ending:
    """Rebuild, and say in the facts that it begins, by which options, and how it ended."""
    named, handler = {"projection": plan.projection, "in_place": in_place}, plan.handler
    recording = ops.acts.recording(
        ActKind.PROJECTION_REBUILT, handler, by=person(), tool_id=handler
    )
    with recording as act:
        ops.acts.record(
            ActKind.PROJECTION_REBUILD_STARTED,
            handler,
            by=person(),
            data=named | options,
            tool_id=handler,
        )
        ending = run()
        act.done(named | ending_json(ending), kind=_ENDED[type(ending)])
    return ending


def _run(site: Site, *, verify: bool, options: dict[str, Any], as_json: bool) -> Ending:
    with stopped_by_signal() as stop, bar(quiet=as_json) as tell:
        return _rebuild(site, stop, tell, verify=verify, options=options)


def _rebuild(
    site: Site,
    stop: threading.Event,
    tell: Callable[..., object],
    *,
    verify: bool,
    options: dict[str, Any],
) -> Ending:
    run = Rebuild(
        plan=site.plan,
        store=site.store,
        green=site.green,
        clock=SystemClock(),
        stop=stop.is_set,
        begun=print_begun,
        tell=tell,
        **options,
    )
    return run.verify() if verify else run.run()


#: How a rebuild that changes something ended.
_ENDED: Final[dict[type, ActKind]] = {
    SwitchedOver: ActKind.PROJECTION_REBUILT,
    RebuildStopped: ActKind.PROJECTION_REBUILD_STOPPED,
}


def _finish(ending: Ending, name: str, *, as_json: bool) -> None:
    if as_json:
        print_json(ending_json(ending))
    else:
        print_ending(ending, name)
    if not is_good(ending):
        raise SystemExit(1)


def _abandon(ops: Operations, site: Site, name: str, *, yes: bool) -> None:
    if not yes:
        what = f"Remove what an unfinished rebuild of {name} has made?"
        click.confirm(what, abort=True, err=True)
    kind, plan = ActKind.PROJECTION_REBUILD_ABANDONED, site.plan
    recording = ops.acts.recording(kind, plan.handler, by=person(), tool_id=plan.handler)
    with recording as act:
        abandoned = site.green.abandon()
        if abandoned is not None:
            act.done({"projection": plan.projection})
    if abandoned is None:
        click.echo("there was nothing to remove")
    elif abandoned.whole:
        click.echo(f"removed; {name} itself is as it was")
    else:
        click.echo(
            f"removed; {name} was emptied and is incomplete: live events go on in every aggregate"
            " as far as it came, and the others need a rebuild (--in-place)"
        )


def _question(name: str, *, in_place: bool) -> str:
    if in_place:
        return f"Empty the read model of {name} and fill it again, before everybody's eyes?"
    return f"Rebuild {name} beside its read model, and put it in its place?"
