"""Switches for people and programs: tables, lines, JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from angzarr.cli.entry_view import console, safe
from angzarr.cli.local_time import moment
from angzarr.printable import printable
from angzarr.resilience.switches import Action, Selector, Switch, SwitchChange

_COLOURS = {Action.PAUSE: "yellow", Action.DROP: "bold red"}
_REMEDY = "garbage, or of a newer release; `angzarr flow resume` with its id removes it"


def table(switches: Sequence[Switch], unreadable: Sequence[str]) -> Table:
    """Return a table with one row a switch, and one for each id of what is *unreadable*."""
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
    """Return *switch* as a line."""
    until = f", until {moment(switch.until)}" if switch.until else ""
    return f"{switch}{until}"


def removed(id_: str) -> str:
    """Return that what lay there as *id_* is gone, as a line."""
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
    """Return a switch as a JSON object."""
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
    """Return what cannot be read as a JSON object like that of a switch."""
    unknown = ("action", *Selector._fields, "by", "reason", "at", "until")
    return {"id": id_, **dict.fromkeys(unknown), "understood": False}


def change_json(change: SwitchChange) -> dict[str, Any]:
    """Return a change as a JSON object."""
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
