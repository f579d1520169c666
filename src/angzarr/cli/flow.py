"""angzarr flow: pause, drop and resume deliveries of the whole fleet while it runs.

Switches for people and programs: tables, lines, JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, TypeVar

import click
from rich.table import Table

from angzarr.cli.application import load_application
from angzarr.cli.terminal import JSON, YES, Moment, Span, console, moment, print_json, safe
from angzarr.facts.act import ActKind
from angzarr.resilience.switches import (
    REMEMBERED,
    Selector,
    Switch,
    SwitchAction,
    SwitchChange,
    SwitchControls,
    fits,
)
from angzarr.runtime.text import printable
from angzarr.wiring.analysis_worker import person
from angzarr.wiring.operations import Operations

_F = TypeVar("_F", bound=Callable[..., Any])

_SELECTORS: Final = (
    click.option("--handler", help="Name of the handler, or a pattern of names: 'shop.*'."),
    click.option("--event-type", help="Type of the event."),
    click.option("--tenant", help="Id of the tenant."),
    click.option("--domain", help="Domain: the handler's, else the event's."),
    click.option("--all", "everything", is_flag=True, help="All, in place of the above."),
)
_TERMS: Final = (
    click.option("--until", type=Moment(ago=False), help="When it ends by itself, local time."),
    click.option("--for", "lasts", type=Span(), help="Or after how long: 90s, 15m, 2h, 1d."),
)
_REASON: Final = "Why, for the history and everybody's logs."


def _with(*options: Callable[[_F], _F]) -> Callable[[_F], _F]:
    def decorate(command: _F) -> _F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


@click.group()
def flow() -> None:
    """Deliveries of the whole fleet: pause them, drop them, resume."""


@flow.command("list")
@JSON
@click.pass_obj
def list_(app_name: str | None, *, as_json: bool) -> None:
    """List what is paused or dropped, the oldest first, then what cannot be read."""
    controls = load_application(app_name).switch_controls()
    found, unreadable = controls.switches(), controls.unreadable()
    if as_json:
        print_json(_told(found, unreadable))
    elif found or unreadable:
        console().print(table(found, unreadable))
    else:
        click.echo("nothing is paused or dropped")


@flow.command()
@_with(*_SELECTORS, *_TERMS)
@click.option("--reason", default="", help=_REASON)
@JSON
@click.pass_obj
def pause(app_name: str | None, /, *, reason: str, as_json: bool, **said: Any) -> None:
    """Let deliveries wait until they are resumed; they use no attempt and never grow too old."""
    _order(app_name, said).put(SwitchAction.PAUSE, reason, as_json=as_json)


@flow.command()
@_with(*_SELECTORS, *_TERMS)
@click.option("--reason", required=True, help=_REASON)
@YES
@JSON
@click.pass_obj
def drop(app_name: str | None, /, *, reason: str, yes: bool, as_json: bool, **said: Any) -> None:
    """Skip deliveries for good: each is a fact, and is not handled when you resume."""
    order = _order(app_name, said)
    if not yes:
        click.confirm(f"Drop for good what fits: {order.selector}?", abort=True, err=True)
    order.put(SwitchAction.DROP, reason, as_json=as_json)


@flow.command()
@click.argument("ids", nargs=-1)
@_with(*_SELECTORS)
@click.option("--reason", default="", help=_REASON)
@JSON
@click.pass_obj
def resume(
    app_name: str | None, /, ids: tuple[str, ...], *, reason: str, as_json: bool, **said: Any
) -> None:
    """End switches: by ID, the one of just these options, or --all.

    What was paused is handled within a minute; what was dropped is gone. By ID or --all also
    what cannot be read is removed.
    """
    ops = load_application(app_name)
    controls = ops.switch_controls()
    unreadable = controls.unreadable()
    wanted = _wanted(controls.switches(), unreadable, ids, said)
    what = ", ".join(wanted)
    with ops.acts.recording(ActKind.FLOW_SWITCHED, what, by=person(), reason=reason):
        ended = controls.resume(wanted, by=person(), reason=reason)
    gone = [id_ for id_ in unreadable if id_ in wanted]
    if as_json:
        print_json(_told(ended, gone))
        return
    if not (ended or gone):
        click.echo("nothing was paused or dropped")
    for switch in ended:
        click.echo(f"resumed what was {line(switch)}")
    for id_ in gone:
        click.echo(removed(id_))


@flow.command()
@click.option("--limit", type=click.IntRange(1, REMEMBERED), default=50, show_default=True)
@JSON
@click.pass_obj
def history(app_name: str | None, *, limit: int, as_json: bool) -> None:
    """Tell who changed what, when and why, the oldest first."""
    changes = load_application(app_name).switch_controls().history(limit)
    if as_json:
        print_json([change_json(change) for change in changes])
    else:
        print_history(changes)


class _Order(NamedTuple):
    """The switch that is to be set, and where; all of it has been checked."""

    ops: Operations
    controls: SwitchControls
    selector: Selector
    until: datetime | timedelta | None

    def put(self, action: SwitchAction, reason: str, *, as_json: bool) -> None:
        """Do it and tell of it."""
        kind, what = ActKind.FLOW_SWITCHED, str(self.selector)
        with self.ops.acts.recording(kind, what, by=person(), reason=reason):
            switch = self.controls.put(
                self.selector, action, by=person(), reason=reason, until=self.until
            )
        if as_json:
            print_json(switch_json(switch))
            return
        click.echo(line(switch))
        click.echo(f"end it with: angzarr flow resume {switch.id}")


def _order(app_name: str | None, said: dict[str, Any]) -> _Order:
    selector, until = _selector(said), _until(said)
    ops = load_application(app_name)
    controls = ops.switch_controls()
    _check_handler(selector, [handler.name for handler in ops.context.handlers])
    return _Order(ops, controls, selector, until)


def _told(switches: Sequence[Switch], unreadable: Sequence[str]) -> list[dict[str, Any]]:
    return [
        *map(switch_json, switches),
        *map(unreadable_json, unreadable),
    ]


def _wanted(
    found: Sequence[Switch], unreadable: Sequence[str], ids: Sequence[str], said: dict[str, Any]
) -> Sequence[str]:
    """The ids of the switches to end, all of which there are."""
    if ids and any(said.values()):
        raise click.UsageError("say which: either switches by id, or by options such as --handler")
    known: dict[str, object] = {switch.id: switch.selector for switch in found}
    known |= dict.fromkeys(unreadable, "unreadable")
    if said["everything"]:
        _selector(said)
        return list(known)
    selector = None if ids else _selector(said)
    wanted = ids if selector is None else [selector.id]
    if not known.keys() >= set(wanted):
        what = ", ".join(ids) if selector is None else f"for just {selector}"
        there = "; ".join(f"{id_} ({one})" for id_, one in known.items()) or "none"
        msg = f"there is no switch {what}; there are: {there}"
        raise click.ClickException(printable(msg))
    return wanted


def _selector(said: dict[str, Any]) -> Selector:
    selector = Selector(said["handler"], said["event_type"], said["tenant"], said["domain"])
    named = any(part is not None for part in selector)
    if named == said["everything"]:
        raise click.UsageError(
            "say which: --handler, --event-type, --tenant, --domain or several; or --all alone"
        )
    return selector


def _until(said: dict[str, Any]) -> datetime | timedelta | None:
    until, lasts = said["until"], said["lasts"]
    if until is not None and lasts is not None:
        raise click.UsageError("say --until or --for, not both")
    if until is None:
        return lasts  # type: ignore[no-any-return]
    ends: datetime = until
    if ends <= datetime.now(UTC):
        msg = f"--until {until} is over already"
        raise click.UsageError(msg)
    return ends


def _check_handler(selector: Selector, names: Sequence[str]) -> None:
    """Refuse a name that no handler has: the switch would do nothing."""
    if any(fits(Selector(selector.handler), Selector(name)) for name in names):
        return
    known = ", ".join(sorted(name for name in names if not name.startswith("celery."))) or "none"
    msg = f"no handler of this app is called {selector.handler!r}; known are: {known}"
    raise click.ClickException(msg)


_COLOURS = {SwitchAction.PAUSE: "yellow", SwitchAction.DROP: "bold red"}
_REMEDY = "garbage, or of a newer release; `angzarr flow resume` with its id removes it"


def table(switches: Sequence[Switch], unreadable: Sequence[str]) -> Table:
    """A table with one row a switch, and one for each *unreadable* id."""
    made = Table()
    for column in ("switch", "what", "which", "since", "until", "by", "why"):
        made.add_column(column, no_wrap=column == "switch")
    for switch in switches:
        made.add_row(
            safe(switch.id),
            safe(_what(switch), _COLOURS[switch.action]),
            safe(switch.selector),
            safe(moment(switch.at)),
            safe(moment(switch.until) if switch.until else ""),
            safe(switch.by),
            safe(switch.reason),
        )
    for id_ in unreadable:
        made.add_row(safe(id_), safe("unreadable", "red"), "nothing", "", "", "", _REMEDY)
    return made


def line(switch: Switch) -> str:
    """The text of *switch* in one line."""
    until = f", until {moment(switch.until)}" if switch.until else ""
    return f"{switch}{until}"


def removed(id_: str) -> str:
    """The line that says that the unreadable entry *id_* is gone."""
    return f"removed {printable(id_)}, which this release could not read"


def print_history(changes: Sequence[SwitchChange]) -> None:
    """Print a line for each change."""
    out = console()
    for change in changes:
        out.print(safe(_change_line(change)), soft_wrap=True)


def _change_line(change: SwitchChange) -> str:
    why = f": {change.reason}" if change.reason else ""
    until = change.after.until if change.after is not None else None
    ends = f", until {moment(until)}" if until else ""
    instead = f", in place of what is {change.before}" if change.before and change.after else ""
    return printable(
        f"{moment(change.at)}  {change.word} {_which(change)}, by {change.by}{why}{ends}{instead}"
    )


def _which(change: SwitchChange) -> str:
    return str(change.selector or f"what was unreadable (switch {change.switch_id})")


def _what(switch: Switch) -> str:
    return switch.action.value if switch.understood else f"{switch.action.value} (to be safe)"


def switch_json(switch: Switch) -> dict[str, Any]:
    """A switch as a JSON object."""
    return {
        "id": switch.id,
        "action": switch.action.value,
        **switch.selector._asdict(),
        "by": switch.by,
        "reason": switch.reason,
        "at": switch.at.isoformat(),
        "until": switch.until and switch.until.isoformat(),
        "understood": switch.understood,
    }


def unreadable_json(id_: str) -> dict[str, Any]:
    """An unreadable entry as a JSON object like that of a switch."""
    unknown = ("action", *Selector._fields, "by", "reason", "at", "until")
    return {"id": id_, **dict.fromkeys(unknown), "understood": False}


def change_json(change: SwitchChange) -> dict[str, Any]:
    """A change as a JSON object."""
    return {
        "id": change.id,
        "action": change.word,
        "switch_id": change.switch_id,
        **(change.selector or Selector())._asdict(),
        "by": change.by,
        "reason": change.reason,
        "at": change.at.isoformat(),
        "before": change.before and switch_json(change.before),
        "after": change.after and switch_json(change.after),
    }
