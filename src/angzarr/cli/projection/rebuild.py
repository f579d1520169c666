"""angzarr projection rebuild: a read model made anew from the event books (spec P4)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

import click

from angzarr.cli.application import load_application
from angzarr.cli.dlq.selection import JSON, YES
from angzarr.cli.projection.rebuild_view import (
    bar,
    ending_json,
    is_good,
    print_begun,
    print_ending,
)
from angzarr.cli.standard_output import print_json
from angzarr.clock import SystemClock
from angzarr.projections.rebuild import BATCH, Ending, Rebuild
from angzarr.wiring.analysis_worker import stopped_by_signal
from angzarr.wiring.projections import Site, open_site

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
    with open_site(load_application(app_name), name, in_place=in_place) as site:
        if abandon:
            _abandon(site, name, yes=yes)
            return
        if not (yes or verify):
            click.confirm(_question(name, in_place=in_place), abort=True, err=True)
        with stopped_by_signal() as stop, bar(quiet=as_json) as tell:
            ending = _run(site, stop, tell, verify=verify, options=options)
    _finish(ending, name, as_json=as_json)


def _run(
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


def _finish(ending: Ending, name: str, *, as_json: bool) -> None:
    if as_json:
        print_json(ending_json(ending))
    else:
        print_ending(ending, name)
    if not is_good(ending):
        raise SystemExit(1)


def _abandon(site: Site, name: str, *, yes: bool) -> None:
    if not yes:
        what = f"Remove what an unfinished rebuild of {name} has made?"
        click.confirm(what, abort=True, err=True)
    abandoned = site.green.abandon()
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
