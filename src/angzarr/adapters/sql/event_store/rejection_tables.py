"""The table of rejected commands (spec C4). Times are UTC; an empty edition is the main line."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, DateTime, Index, Integer, Table, Text

from angzarr.adapters.sql.engine.schema_revisions import ONLY_ON
from angzarr.adapters.sql.event_store.tables import METADATA


def _address(of: str) -> tuple[Column[str], ...]:
    return tuple(
        Column(f"{of}_{name}", Text, nullable=False) for name in ("domain", "root", "edition")
    )


rejected_commands = Table(
    "rejected_commands",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("saga", Text, nullable=False),
    *_address("source"),
    Column("source_sequence", BigInteger().with_variant(Integer, "sqlite"), nullable=False),
    *_address("target"),
    Column("command_id", Text, nullable=False),
    Column("command_type", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("correlation_id", Text, nullable=False, index=True),
    Column("rejected_at", DateTime(timezone=True), nullable=False),
    Column("status", Text, nullable=False),
    Column("answer", Text, nullable=False),
    Column("first_event", Integer),
    Column("event_count", Integer, nullable=False),
    Column("steps", Text, nullable=False),
    Column("asked_again", Integer, nullable=False),
    Column("asked_by", Text, nullable=False),
    Column("note", Text, nullable=False),
    Column("changed_at", DateTime(timezone=True), nullable=False),
    Column("rejection", Text, nullable=False),
    Index("ix_rejected_commands_newest", "rejected_at", "id"),
    Index("ix_rejected_commands_status", "status", "rejected_at", "id"),
    Index("ix_rejected_commands_changed", "status", "changed_at"),
    Index("ix_rejected_commands_saga", "saga", "rejected_at", "id"),
    Index("ix_rejected_commands_source", "source_domain", "rejected_at", "id"),
    # A primary key is sorted as people sort, which serves no LIKE.
    Index(
        "ix_rejected_commands_beginning",
        "id",
        postgresql_ops={"id": "text_pattern_ops"},
        info={ONLY_ON: "postgresql"},
    ).ddl_if(dialect="postgresql"),
)
