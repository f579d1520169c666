"""The tables of a green space that say how far it is. They lie in it, beside its read model."""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Boolean, Column, Integer, MetaData, Table, Text

from angzarr.adapters.sql.ledger_tables import UtcTime

#: Stands for wherever the space lies: a connection says where that is.
SPACE: Final = "angzarr_space"

METADATA = MetaData(schema=SPACE)


def _key() -> tuple[Column[str], ...]:
    return tuple(Column(name, Text, primary_key=True) for name in ("domain", "root", "edition"))


#: One row. `fingerprint` is of what is rebuilt; the cursor's columns are NULL at the beginning.
angzarr_rebuild = Table(
    "angzarr_rebuild",
    METADATA,
    Column("fingerprint", Text, nullable=False),
    Column("started_at", UtcTime, nullable=False),
    Column("events", BigInteger, nullable=False),
    Column("domain", Text),
    Column("root", Text),
    Column("edition", Text),
    Column("next_sequence", Integer),
    # Whether the live read model is emptied, in a rebuild in place; NULL: nobody has begun to.
    Column("emptied", Boolean),
    # Whether it is for a comparison, and whether effects may be there without their places.
    Column("verifies", Boolean, nullable=False),
    Column("spoiled", Boolean, nullable=False),
)

angzarr_rebuild_places = Table(
    "angzarr_rebuild_places",
    METADATA,
    *_key(),
    Column("next_sequence", Integer, nullable=False),
)

#: What becomes the checkpoint; names and ids as in `projection_checkpoints`.
angzarr_rebuild_types = Table(
    "angzarr_rebuild_types",
    METADATA,
    Column("event_type", Text, primary_key=True),
    Column("last_event_id", Text, nullable=False),
    Column("last_event_type", Text, nullable=False),
    Column("events", BigInteger, nullable=False),
)

angzarr_rebuild_failures = Table(
    "angzarr_rebuild_failures",
    METADATA,
    *_key(),
    Column("sequence", Integer, nullable=False),
    Column("event_id", Text, nullable=False),
    Column("event_type", Text, nullable=False),
    Column("error", Text, nullable=False),
)
