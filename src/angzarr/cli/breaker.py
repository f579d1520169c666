"""angzarr breaker: what the fleet's breakers do, and what a person can do to them (spec D5).

Breakers for people and programs: tables and lines.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import click
from rich.live import Live
from rich.table import Table

from angzarr.cli.application import load_application
from angzarr.cli.terminal import JSON, console, draws, moment, print_json, safe
from angzarr.facts.act import ActKind
from angzarr.resilience.breaker import (
    BreakerControls,
    BreakerState,
    Phase,
    Transition,
    counts,
    state_json,
    transition_json,
)
from angzarr.resilience.breaker_guard import check_full_name
from angzarr.runtime.text import ago, printable, span_text
from angzarr.wiring.analysis_worker import person

#: Transitions that `show` tells, and that one look of `watch` finds at most.
_TOLD: Final = 1000
_LOOK_EVERY: Final = 1.0


@click.group()
def breaker() -> None:
    """Breakers of the fleet: see them, hold one open, close it."""


@breaker.command("list")
@JSON
@click.pass_obj
def list_(app_name: str | None, *, as_json: bool) -> None:
    """List every breaker that is set up, or was used within a week."""
    states = _controls(app_name).states()
    if as_json:
        print_json([state_json(name, state) for name, state in states.items()])
    else:
        console().print(table(states, datetime.now(UTC)))


@breaker.command()
@click.argument("name")
@JSON
@click.pass_obj
def show(app_name: str | None, name: str, *, as_json: bool) -> None:
    """Show the breaker NAME and what became of it lately."""
    controls = _controls(app_name)
    state = _known(controls, name)
    changes = [change for change in controls.history(_TOLD) if change.name == name]
    if as_json:
        told = [transition_json(change) for change in changes]
        print_json(state_json(name, state) | {"transitions": told})
    else:
        print_detail(name, state, changes, datetime.now(UTC))


@breaker.command()
@click.argument("name")
@click.option("--create", is_flag=True, help="Also if no breaker of this name has been used.")
@click.pass_obj
def isolate(app_name: str | None, name: str, *, create: bool) -> None:
    """Hold the breaker NAME open until it is reset: nothing calls its dependency."""
    ops = load_application(app_name)
    controls = ops.breaker_controls()
    if create:
        check_full_name(name)
    else:
        _known(controls, name)
    with ops.acts.recording(ActKind.BREAKER_CHANGED, name, by=person()):
        controls.isolate(name, by=person())
    shown = printable(name)
    click.echo(f"{shown} is isolated; its deliveries wait until `angzarr breaker reset {shown}`")


@breaker.command()
@click.argument("name")
@click.pass_obj
def reset(app_name: str | None, name: str) -> None:
    """Close the breaker NAME and forget what it saw; traffic is let in gradually."""
    ops = load_application(app_name)
    controls = ops.breaker_controls()
    _known(controls, name)
    with ops.acts.recording(ActKind.BREAKER_CHANGED, name, by=person()):
        controls.reset(name, by=person())
    click.echo(f"{printable(name)} is closed")


@breaker.command()
@click.pass_obj
def watch(app_name: str | None) -> None:
    """Show all breakers as they change, until Ctrl-C; a line for each change in a pipe."""
    controls = _controls(app_name)
    out = console()
    try:
        if draws(out):
            with Live(console=out, auto_refresh=False) as live:
                while True:
                    live.update(table(controls.states(), datetime.now(UTC)))
                    live.refresh()
                    time.sleep(_LOOK_EVERY)
        _tell_changes(controls)
    except KeyboardInterrupt:
        return


def _tell_changes(controls: BreakerControls) -> None:
    before = set(controls.history(_TOLD))
    while True:
        time.sleep(_LOOK_EVERY)
        changes = controls.history(_TOLD)
        for change in changes:
            if change not in before:
                click.echo(line(change))
        before = set(changes)


def _controls(app_name: str | None) -> BreakerControls:
    return load_application(app_name).breaker_controls()


def _known(controls: BreakerControls, name: str) -> BreakerState:
    states: Mapping[str, BreakerState] = controls.states()
    if name not in states:
        known = ", ".join(map(printable, states)) or "none"
        msg = f"there is no breaker {name!r}; known are: {known}"
        raise click.ClickException(msg)
    return states[name]


_COLOURS: Final = {
    Phase.CLOSED: "green",
    Phase.OPEN: "bold red",
    Phase.HALF_OPEN: "yellow",
    Phase.ISOLATED: "magenta",
}


def table(states: Mapping[str, BreakerState], now: datetime) -> Table:
    """A table with one row a breaker."""
    made = Table()
    for column in ("breaker", "state", "since", "why", "calls", "failed", "slow", "next probe"):
        made.add_column(column, justify="right" if column in _NUMBERS else "left")
    for name, state in states.items():
        calls, failures, slow = counts(state)
        made.add_row(
            safe(name),
            safe(state.phase.value.replace("_", "-"), _COLOURS[state.phase]),
            safe(ago(state.changed_at, now)),
            safe(state.reason.value if state.reason else ""),
            str(calls), str(failures), str(slow),
            safe(next_probe(state, now)),
        )  # fmt: skip
    return made


_NUMBERS: Final = frozenset({"calls", "failed", "slow"})


def print_detail(
    name: str, state: BreakerState, changes: Sequence[Transition], now: datetime
) -> None:
    """Print a breaker and its transitions."""
    out = console()
    out.print(table({name: state}, now))
    for change in changes:
        out.print(safe(line(change)))


def line(change: Transition) -> str:
    """The text of *change* in one line."""
    counts_ = change.counts
    judged = f", {counts_.failures} of {counts_.requests} calls failed" if counts_.requests else ""
    by = f", by {change.by}" if change.by else ""
    what = f"{change.before} to {change.after}, {change.reason}"
    return printable(f"{moment(change.at)}  {change.name}: {what}{judged}{by}")


def next_probe(state: BreakerState, now: datetime) -> str:
    """The time at which a call may be tried, in words."""
    if state.phase is Phase.OPEN and state.retry_at is not None:
        left = state.retry_at - now
        return f"in {span_text(left)}" if left > timedelta(0) else "with the next call"
    if state.phase is Phase.HALF_OPEN:
        out = [probe for probe in state.probes if probe.ends_at > now]
        return f"{len(out)} under way" if out else "with the next call"
    return "not before a reset" if state.phase is Phase.ISOLATED else ""
