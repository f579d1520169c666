"""Lanes and what waits in them as rows, and back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import RowMapping, Table

from angzarr.adapters.sql.book_rows import address_in, key_of, to_text
from angzarr.ordering.lane import Lane, Waiting, Why
from angzarr.resilience.keys import key_part

#: Characters of a name in a key: with the longest root and edition, of letters of four bytes, it
#: fits into the 2,704 bytes that PostgreSQL gives to an entry of an index.
_MAX_NAME: Final = 120

#: `lent_until` of an early event whose turn has come and whom nobody has.
AT_ONCE: Final = datetime(1970, 1, 1, tzinfo=UTC)


def name_key(name: str) -> str:
    """Return what stands in a key for a handler, a projection or a type of event."""
    return key_part(name, _MAX_NAME)


def lane_key(lane: Lane) -> dict[str, Any]:
    """Return the columns that name a lane."""
    return {"handler": name_key(lane.handler), **key_of(lane.address)}


def at(table: Table, lane: Lane) -> list[Any]:
    """Return the conditions under which a row of *table* belongs to *lane*."""
    return [table.c[name] == value for name, value in lane_key(lane).items()]


def by_key(handlers: Iterable[str]) -> dict[str, str]:
    """Return the names of *handlers* by what stands for them in a key."""
    return {name_key(handler): handler for handler in handlers}


def waiting_row(waiting: Waiting) -> dict[str, Any]:
    """Return the row of an event that waits, as one whose turn has not come."""
    return {
        **lane_key(waiting.lane),
        "sequence": waiting.sequence,
        "why": waiting.why.value,
        "since": waiting.since,
        "event_id": to_text(waiting.event_id),
        "event_type": to_text(waiting.event_type),
        "text": waiting.text,
        "letter_id": waiting.letter_id,
        "due_at": waiting.due_at,
        "lent_until": None,
    }


def waiting_of(row: RowMapping, lane: Lane) -> Waiting:
    """Return what waits in *lane* by *row*."""
    return Waiting(
        lane=lane,
        sequence=row["sequence"],
        why=Why(row["why"]),
        since=row["since"],
        event_id=json.loads(row["event_id"]),
        event_type=json.loads(row["event_type"]),
        text=row["text"],
        letter_id=row["letter_id"],
        due_at=row["due_at"],
    )


def found_in(row: RowMapping, handlers: Mapping[str, str]) -> Waiting:
    """Return what waits by *row*, which has `first_sequence` too, of one of *handlers* by key."""
    lane = Lane(handlers[row["handler"]], address_in(row), row["first_sequence"])
    return waiting_of(row, lane)
