"""angzarr dlq brake: stop replays everywhere at once, and let them go on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Final

import click

from angzarr.analysis.ledger.emergency_stop import (
    Brake,
    BrakeState,
    Scope,
    brake_json,
    brake_state_json,
)
from angzarr.cli.application import load_application
from angzarr.cli.dlq.entry_view import console, safe
from angzarr.cli.dlq.selection import JSON
from angzarr.cli.spans import Span, moment
from angzarr.cli.standard_output import print_json
from angzarr.wiring.analysis_worker import person

_HELD: Final = {
    Scope.NOTHING: "released: replays go on",
    Scope.AUTOMATIC: "pulled: nothing is replayed by itself",
    Scope.ALL: "pulled: nothing is replayed, replay jobs included",
}
#: States that `history` shows.
_SHOWN: Final = 50


@click.group()
def brake() -> None:
    """Stop replays everywhere, and let them go on."""


@brake.command()
@JSON
@click.pass_obj
def status(app_name: str | None, *, as_json: bool) -> None:
    """Show how the brake stands."""
    with _brake(app_name) as found:
        _tell(found.state(), as_json=as_json)


@brake.command()
@click.option("--all", "everything", is_flag=True, help="Stop what people began, too.")
@click.option("--why", default="", help="Why, for the history and those who look.")
@click.option("--for", "lasts", type=Span(), help="After how long it lets go: 15m, 2h, 1d.")
@JSON
@click.pass_obj
def pull(
    app_name: str | None, /, *, everything: bool, why: str, lasts: timedelta | None, as_json: bool
) -> None:
    """Let nothing be replayed by itself any more; what is under way is answered as ever."""
    until = datetime.now(UTC) + lasts if lasts else None
    scope = Scope.ALL if everything else Scope.AUTOMATIC
    with _brake(app_name) as found:
        _tell(found.put(scope, by=person(), why=why, until=until), as_json=as_json)


@brake.command()
@click.option("--why", default="", help="Why, for the history.")
@JSON
@click.pass_obj
def release(app_name: str | None, /, *, why: str, as_json: bool) -> None:
    """Let replays go on."""
    with _brake(app_name) as found:
        _tell(found.put(Scope.NOTHING, by=person(), why=why), as_json=as_json)


@brake.command()
@JSON
@click.pass_obj
def history(app_name: str | None, *, as_json: bool) -> None:
    """Show who moved it, and when, the oldest line first."""
    with _brake(app_name) as found:
        states = found.brake_history(_SHOWN)
    if as_json:
        print_json([brake_state_json(state) for state in states])
        return
    for state in states:
        console().print(safe(_line(state)))


@contextmanager
def _brake(app_name: str | None) -> Iterator[Brake]:
    found = load_application(app_name).open_brake()
    try:
        yield found
    finally:
        found.close()


def _tell(state: BrakeState, *, as_json: bool) -> None:
    now = datetime.now(UTC)
    if as_json:
        print_json(brake_json(state, now))
        return
    console().print(safe(_HELD[state.holds(now)]))
    if state.first is not None and state.holds(now) is not Scope.NOTHING:
        who = "or earlier; then pulled" if state.earlier else "first pulled"
        console().print(safe(f"{moment(state.first.at)}  {who} by {state.first}"))
    if state.at is not None:
        console().print(safe(_line(state)))


def _line(state: BrakeState) -> str:
    why = f": {state.why}" if state.why else ""
    if state.scope is Scope.NOTHING:
        return f"{moment(state.at)}  released by {state.by}{why}"
    ends = f", until {moment(state.until)}" if state.until else ""
    return f"{moment(state.at)}  {state.scope}{ends}  by {state.by}{why}"
