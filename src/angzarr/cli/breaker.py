"""angzarr breaker: what the fleet's breakers do, and what a person can do to them (spec D5)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

import click
from rich.live import Live

from angzarr.cli import breaker_view
from angzarr.cli.analyze import person
from angzarr.cli.application import load_application
from angzarr.cli.entry_json import print_json
from angzarr.cli.entry_view import console, draws
from angzarr.printable import printable
from angzarr.resilience.breaker import BreakerControls, State
from angzarr.resilience.breaker_json import state_json, transition_json
from angzarr.resilience.guarded import check_full_name

#: Transitions that `show` tells, and that one look of `watch` finds at most.
_TOLD: Final = 1000
_LOOK_EVERY: Final = 1.0

_JSON: Final = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")


@click.group()
def breaker() -> None:
    """Breakers of the fleet: see them, hold one open, close it."""


@breaker.command("list")
@_JSON
@click.pass_obj
def list_(app_name: str | None, *, as_json: bool) -> None:
    """List every breaker that is set up, or was used within a week."""
    states = _controls(app_name).states()
    if as_json:
        print_json([state_json(name, state) for name, state in states.items()])
    else:
        console().print(breaker_view.table(states, datetime.now(UTC)))


@breaker.command()
@click.argument("name")
@_JSON
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
        breaker_view.print_detail(name, state, changes, datetime.now(UTC))


@breaker.command()
@click.argument("name")
@click.option("--create", is_flag=True, help="Also if nobody has used a breaker of this name.")
@click.pass_obj
def isolate(app_name: str | None, name: str, *, create: bool) -> None:
    """Hold the breaker NAME open until it is reset: nothing calls its dependency."""
    controls = _controls(app_name)
    if create:
        check_full_name(name)
    else:
        _known(controls, name)
    controls.isolate(name, by=person())
    shown = printable(name)
    click.echo(f"{shown} is isolated; its deliveries wait until `angzarr breaker reset {shown}`")


@breaker.command()
@click.argument("name")
@click.pass_obj
def reset(app_name: str | None, name: str) -> None:
    """Close the breaker NAME and forget what it saw; traffic is let in gradually."""
    controls = _controls(app_name)
    _known(controls, name)
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
                    live.update(breaker_view.table(controls.states(), datetime.now(UTC)))
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
                click.echo(breaker_view.line(change))
        before = set(changes)


def _controls(app_name: str | None) -> BreakerControls:
    return load_application(app_name).breaker_controls()


def _known(controls: BreakerControls, name: str) -> State:
    states: Mapping[str, State] = controls.states()
    if name not in states:
        known = ", ".join(map(printable, states)) or "none"
        msg = f"there is no breaker {name!r}; known are: {known}"
        raise click.ClickException(msg)
    return states[name]
