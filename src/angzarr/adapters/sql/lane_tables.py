"""The tables of lanes, what waits in them, and checkpoints (spec P2, P3). Times are UTC.

They live in one database: a lane moves in the transaction that counts it (ADR 0051). This is what
`migrations/ordering` lead to; whoever changes a table here adds a revision there.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, Table, Text

from angzarr.adapters.sql.ledger_tables import UtcTime
from angzarr.adapters.sql.schema import version_table

METADATA = MetaData()

#: The revision of the tables below.
HEAD: Final = "0002"
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
    # NULL: nobody moved it, there only waits something.
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
    # Of an early one: set once its lane has come to it; until then somebody has it.
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
