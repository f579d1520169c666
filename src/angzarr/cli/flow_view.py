"""Switches for people and programs: tables, lines, JSON."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rich.table import Table

from angzarr.cli.entry_view import console, safe
from angzarr.printable import printable
from angzarr.resilience.switches import Action, Switch, SwitchChange

_COLOURS = {Action.PAUSE: "yellow", Action.DROP: "bold red"}


def table(switches: Sequence[Switch]) -> Table:
    """Return a table with one row a switch."""
    made = Table()
    for column in ("switch", "what", "which", "since", "until", "by", "why"):
        made.add_column(column, no_wrap=column == "switch")
    for switch in switches:
        made.add_row(
            safe(switch.id),
            safe(switch.action.value, _COLOURS[switch.action]),
            safe(switch.selector),
            safe(_local(switch.at)),
            safe(_local(switch.until) if switch.until else ""),
            safe(switch.by),
            safe(switch.reason),
        )
    return made


def line(switch: Switch) -> str:
    """Return *switch* as a line."""
    until = f", until {_local(switch.until)}" if switch.until else ""
    return f"{switch}{until}"


def print_history(changes: Sequence[SwitchChange]) -> None:
    """Print a line for each change."""
    out = console()
    for change in changes:
        out.print(safe(_change_line(change)), soft_wrap=True)


def _change_line(change: SwitchChange) -> str:
    why = f": {change.reason}" if change.reason else ""
    until = change.after.until if change.after is not None else None
    ends = f", until {_local(until)}" if until else ""
    instead = f", in place of what is {change.before}" if change.before and change.after else ""
    return printable(
        f"{_local(change.at)}  {change.word} {change.selector}, by {change.by}{why}{ends}{instead}"
    )


def switch_json(switch: Switch) -> dict[str, Any]:
    """Return a switch as a JSON object."""
    return {
        "id": switch.id,
        "action": switch.action.value,
        **switch.selector._asdict(),
        "by": switch.by,
        "reason": switch.reason,
        "at": switch.at.isoformat(),
        "until": switch.until and switch.until.isoformat(),
    }


def change_json(change: SwitchChange) -> dict[str, Any]:
    """Return a change as a JSON object."""
    return {
        "id": change.id,
        "action": change.word,
        **change.selector._asdict(),
        "by": change.by,
        "reason": change.reason,
        "at": change.at.isoformat(),
        "before": change.before and switch_json(change.before),
        "after": change.after and switch_json(change.after),
    }


def _local(at: datetime) -> str:
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S")
