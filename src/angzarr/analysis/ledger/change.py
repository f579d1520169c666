"""Change: an entry after something happened to it, and what its history says. A value."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from angzarr.analysis.ledger.entry import Entry, HistoryLine
from angzarr.analysis.ledger.replay_options import AS_IT_IS, ReplayOrder


class Change(NamedTuple):
    """An entry after a change, and what its history says of it; None: no line is worth it."""

    entry: Entry
    line: HistoryLine | None
    #: Kept with the replay that begins, if there is something to keep.
    order: ReplayOrder = AS_IT_IS


def changed_to(entry: Entry, **fields: object) -> Entry:
    """Return *entry* with *fields*, one revision on; a hold ends with the status that it held."""
    if "status" in fields:
        fields = {"hold": None, **fields}
    return replace(entry, revision=entry.revision + 1, **fields)  # type: ignore[arg-type]
