"""The table of facts (spec F1): rows are only ever added. Times are UTC."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    DateTime,
    Engine,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
)

from angzarr.adapters.sql.engine import create_missing

METADATA = MetaData()

facts = Table(
    "facts",
    METADATA,
    # The order of arrival in this database; SQLite counts only an INTEGER key by itself.
    Column("position", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("type", Text, nullable=False),
    Column("subtype", Text, nullable=False),
    Column("timestamp", DateTime(timezone=True), nullable=False, index=True),
    Column("tenant_id", Text),
    Column("entity_id", Text, index=True),
    Column("tool_id", Text, index=True),
    Column("asset_id", Text),
    Column("config_id", Text),
    Column("config_version", Text),
    Column("data", JSON, nullable=False),
    Index("ix_facts_kind", "type", "subtype"),
)


def create_facts_table(engine: Engine) -> None:
    """Create the table if it is missing; any number of processes may do so at once."""
    create_missing(engine, METADATA)
