"""How a switch lies in Redis: what switches.lua is told, and what anybody may have written there.

What a newer release wrote is never taken for less than it says: of a switch that says more of
what it does than is known here a pause is honoured, one that says more of whom it means is not
read at all.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from angzarr.adapters.redis.flow_line import moment
from angzarr.resilience.switches import Selector, Switch, SwitchAction, SwitchChange

_MS: Final = timedelta(milliseconds=1)
_SAID: Final = frozenset({"selector", "action", "by", "reason"})
_ACTIONS: Final = [action.value for action in SwitchAction]
#: What reading anything else than a switch may raise.
_ODD: Final = (
    ValueError, TypeError, KeyError, AttributeError, OverflowError, OSError, RecursionError,
)  # fmt: skip


def told_switch(selector: Selector, action: SwitchAction, by: str, reason: str) -> str:
    """Return what a switch says as the script keeps it, in ASCII."""
    said = {"selector": selector.named, "action": action, "by": by, "reason": reason}
    return json.dumps(said)


def told_person(by: str, reason: str) -> str:
    """Return who resumes, and why, as the script keeps it, in ASCII."""
    return json.dumps({"by": by, "reason": reason})


def told_end(until: datetime | timedelta | None) -> str:
    """Return when a switch ends as the script reads it."""
    if isinstance(until, timedelta):
        return f"+{until // _MS}"
    return "0" if until is None else f"{until.timestamp() * 1000:.0f}"


def read_switch(id_: str, told: str) -> Switch | None:
    """Return the switch that stands under *id_*, None if it cannot be told whom it means."""
    try:
        at, ends, text = told.split(" ", 2)
        said: dict[str, Any] = json.loads(text)
        selector = _selector(said["selector"])
        known = said.get("action") in _ACTIONS and said.keys() <= _SAID
        switch = Switch(
            selector=selector,
            action=SwitchAction(said["action"]) if known else SwitchAction.PAUSE,
            by=_text(said["by"]),
            reason=_text(said["reason"]),
            at=moment(int(at)),
            until=None if ends == "0" else moment(int(ends)),
            understood=known,
        )
    except _ODD:
        return None
    return switch if switch.id == id_ else None


def read_changes(entries: Iterable[tuple[str, Mapping[str, str]]]) -> list[SwitchChange]:
    """Return the changes among *entries* of the history, each its id there and what it says."""
    found = [read_change(entry, told) for entry, told in entries]
    return [change for change in found if change is not None]


def read_change(entry: str, told: Mapping[str, str]) -> SwitchChange | None:
    """Return a change as the script wrote it into the history, None if it is none.

    *entry* is its id there.
    """
    try:
        id_, said = told["switch"], json.loads(told["said"])
        before = read_switch(id_, told["before"])
        after = read_switch(id_, told["after"])
        if told["after"] and after is None:
            return None
        subject = after or before
        return SwitchChange(
            id=entry,
            switch_id=id_,
            selector=subject.selector if subject else None,
            before=before,
            after=after,
            by=_text(said["by"]),
            reason=_text(said["reason"]),
            at=moment(int(entry.partition("-")[0])),
        )
    except _ODD:
        return None


def _selector(named: Mapping[str, Any]) -> Selector:
    said = {part: name for part, name in named.items() if name is not None}
    return Selector(**{part: _text(name) for part, name in said.items()})


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value
