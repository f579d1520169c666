"""The tables of lanes, what waits in them, and checkpoints (spec P2, P3), and their rows.

They live in one database: a lane moves in the transaction that counts it (ADR 0051). Times are UTC.
`migrations/ordering` leads to these tables: a change here needs a revision there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, RowMapping, Table, Text

from angzarr.adapters.sql.engine.schema import Schema, version_table
from angzarr.adapters.sql.event_store.tables import address_in, key_of, to_text
from angzarr.adapters.sql.ledger.column_types import UtcTime
from angzarr.ordering.lane import Lane, Waiting, Why
from angzarr.resilience.idempotency import key_part

METADATA = MetaData()

#: The revision of the tables below.
HEAD: Final = "0003"
#: As on the wire, which is beyond four bytes with a sign; SQLite's numbers have eight.
_SEQUENCE: Final = BigInteger().with_variant(Integer, "sqlite")


def _key() -> tuple[Column[str], ...]:
    names = ("handler", "domain", "root", "edition")
    return tuple(Column(name, Text, primary_key=True) for name in names)


#: One row a lane; who changes what waits in it holds it.
ordering_lanes = Table(
    "ordering_lanes",
    METADATA,
    *_key(),
    # With which aggregates begin.
    Column("first_sequence", _SEQUENCE, nullable=False),
    Column("next_sequence", _SEQUENCE, nullable=False),
    # How many rows it has in `ordering_waiting`.
    Column("waiting", Integer, nullable=False),
    # NULL: it never moved, there only waits something.
    Column("moved_at", UtcTime),
    # The place whose event was sent again, how often, and until when it is not; of the past, if
    # the lane is elsewhere.
    Column("sent_place", _SEQUENCE),
    Column("sent_times", Integer),
    Column("sent_until", UtcTime),
)
# A move where nothing waits changes no column of an index: PostgreSQL then writes to none.
Index(
    "ix_ordering_lanes_waiting",
    ordering_lanes.c.handler,
    postgresql_where=ordering_lanes.c.waiting > 0,
    sqlite_where=ordering_lanes.c.waiting > 0,
)

#: The columns are the fields of `Waiting`, by name; `event_id` and `event_type` as JSON.
ordering_waiting = Table(
    "ordering_waiting",
    METADATA,
    *_key(),
    Column("sequence", _SEQUENCE, primary_key=True, autoincrement=False),
    Column("why", Text, nullable=False),
    Column("since", UtcTime, nullable=False),
    Column("event_id", Text, nullable=False),
    Column("event_type", Text, nullable=False),
    Column("text", Text),
    Column("letter_id", Text),
    Column("due_at", UtcTime),
    # Of an early one: set once its lane has come to it; until then it is lent.
    Column("lent_until", UtcTime),
)
Index(
    "ix_ordering_waiting_lent_until",
    ordering_waiting.c.handler,
    ordering_waiting.c.lent_until,
    postgresql_where=ordering_waiting.c.lent_until.is_not(None),
    sqlite_where=ordering_waiting.c.lent_until.is_not(None),
)
Index(
    "ix_ordering_waiting_letter_id",
    ordering_waiting.c.letter_id,
    postgresql_where=ordering_waiting.c.letter_id.is_not(None),
    sqlite_where=ordering_waiting.c.letter_id.is_not(None),
)

#: How the steps of the last day ended, for a delivery that was killed before its claim ended
#: (ADR 0092). One index serves to find a row and to delete old ones.
ordering_ends = Table(
    "ordering_ends",
    METADATA,
    # The quarter of an hour of `at`, counted from 1970.
    Column("quarter", Integer, primary_key=True, autoincrement=False),
    # A digest of lane, sequence and event id.
    Column("step", BigInteger, primary_key=True, autoincrement=False),
    Column("token", Text, nullable=False),
    Column("at", UtcTime, nullable=False),
    # JSON: why it was skipped, and the id of the switch; NULL: it was handled.
    Column("skipped", Text),
)

#: Who looks after the lanes of some handlers, and until when.
ordering_keepers = Table(
    "ordering_keepers",
    METADATA,
    # The digest of the handlers' names.
    Column("handlers", Text, primary_key=True),
    Column("keeper", Text, nullable=False),
    Column("until", UtcTime, nullable=False),
)

#: A checkpoint is the sum of its slots: all threads of a fleet counting in one row would queue up.
projection_checkpoints = Table(
    "projection_checkpoints",
    METADATA,
    Column("projection", Text, primary_key=True),
    Column("event_type", Text, primary_key=True),
    Column("slot", Integer, primary_key=True, autoincrement=False),
    # Both as JSON.
    Column("last_event_id", Text, nullable=False),
    Column("last_event_type", Text, nullable=False),
    Column("last_processed_at", UtcTime, nullable=False),
    Column("events_processed", BigInteger, nullable=False),
)

ordering_version = version_table("ordering", METADATA)

ORDERING: Final = Schema(
    name="ordering",
    called="the database of the order of events",
    metadata=METADATA,
    head=HEAD,
    first=(ordering_lanes,),
    cure="angzarr database upgrade ordering",
    setting="ordering.migrate",
)

#: Characters of a name in a key: with the longest root and edition, of letters of four bytes, it
#: fits into the 2,704 bytes that PostgreSQL gives to an entry of an index.
_MAX_NAME: Final = 120

#: `lent_until` of an early event whose turn has come and that is not lent.
AT_ONCE: Final = datetime(1970, 1, 1, tzinfo=UTC)


def name_key(name: str) -> str:
    """The text that stands in a key for a handler, a projection or a type of event."""
    return key_part(name, _MAX_NAME)


def lane_key(lane: Lane) -> dict[str, Any]:
    """The columns that name a lane."""
    return {"handler": name_key(lane.handler), **key_of(lane.address)}


def at(table: Table, lane: Lane) -> list[Any]:
    """The conditions under which a row of *table* belongs to *lane*."""
    return [table.c[name] == value for name, value in lane_key(lane).items()]


def by_key(handlers: Iterable[str]) -> dict[str, str]:
    """The names of *handlers* by what stands for them in a key."""
    return {name_key(handler): handler for handler in handlers}


def waiting_row(waiting: Waiting) -> dict[str, Any]:
    """The row of an event that waits, as one whose turn has not come."""
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
    """The event that waits in *lane* by *row*."""
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
    """The event that waits by *row*, with `first_sequence` too, of one of *handlers* by key."""
    lane = Lane(handlers[row["handler"]], address_in(row), row["first_sequence"])
    return waiting_of(row, lane)
