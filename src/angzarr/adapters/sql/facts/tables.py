"""The table of facts (spec F1, F2). Rows are only ever added; the database refuses all else.

`migrations/facts` leads to these tables: a change here needs a revision there. Times are UTC.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    Dialect,
    Index,
    Integer,
    MetaData,
    Numeric,
    Table,
    Text,
    TypeDecorator,
)
from sqlalchemy.types import TypeEngine

from angzarr.adapters.sql.engine.append_only import make_append_only
from angzarr.adapters.sql.engine.schema import Schema, version_table
from angzarr.adapters.sql.ledger.column_types import UtcTime

METADATA = MetaData()

#: The revision of the tables below.
HEAD: Final = "0004"


class Amount(TypeDecorator[Decimal]):
    """An exact amount; SQLite, whose numbers are binary, keeps it as text."""

    impl = Numeric
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """How *dialect* keeps it."""
        return dialect.type_descriptor(Text() if dialect.name == "sqlite" else Numeric())

    def process_bind_param(self, value: Decimal | None, dialect: Dialect) -> Any:
        """*value* as it is stored."""
        return f"{value:f}" if value is not None and dialect.name == "sqlite" else value

    def process_result_value(self, value: Any, dialect: Dialect) -> Decimal | None:  # noqa: ARG002 - SQLAlchemy's signature
        """The stored amount."""
        return None if value is None else Decimal(value)


facts = Table(
    "facts",
    METADATA,
    # The order of arrival in this database; SQLite counts only an INTEGER key by itself.
    Column("position", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("type", Text, nullable=False),
    Column("subtype", Text, nullable=False),
    Column("timestamp", UtcTime, nullable=False),
    Column("tenant_id", Text),
    Column("entity_id", Text),
    Column("tool_id", Text),
    Column("asset_id", Text),
    Column("config_id", Text),
    Column("config_version", Text),
    Column("data", JSON, nullable=False),
    Column("event_id", Text),
    Column("trace_id", Text),
    Column("resolves", Text),
    Column("amount", Amount),
    Column("currency", Text),
    Column("from_entity", Text),
    Column("to_entity", Text),
    # Who acted, as data says it, to be asked by; rows of revision 0002 say it there alone.
    Column("by", Text),
)

#: Of each index, by name, its columns; rows without the first have no place in it.
INDEXES: Final = {
    "ix_facts_timestamp": ("timestamp",),
    "ix_facts_by_kind": ("type", "subtype", "timestamp"),
    "ix_facts_by_subtype": ("subtype", "timestamp"),
    "ix_facts_by_tenant": ("tenant_id", "timestamp"),
    "ix_facts_by_entity": ("entity_id", "timestamp"),
    "ix_facts_by_tool": ("tool_id", "timestamp"),
    "ix_facts_by_event": ("event_id",),
    "ix_facts_by_trace": ("trace_id",),
    "ix_facts_by_resolved": ("resolves",),
    "ix_facts_by_asset": ("asset_id", "timestamp"),
    "ix_facts_by_person": ("by", "timestamp"),
}
for _name, _columns in INDEXES.items():
    _first = facts.c[_columns[0]]
    _where = _first.is_not(None) if _first.nullable else None
    Index(
        _name,
        *(facts.c[one] for one in _columns),
        postgresql_where=_where,
        sqlite_where=_where,
    )

# Costs are few among facts: budgets and reports read nothing else.
_is_cost = facts.c.amount.is_not(None)
Index(
    "ix_facts_costs",
    facts.c.tenant_id,
    facts.c.timestamp,
    postgresql_where=_is_cost,
    sqlite_where=_is_cost,
)

#: Its one row, written by who prunes and removed in the same transaction, says what may be deleted.
fact_pruning = Table("fact_pruning", METADATA, Column("until", UtcTime, primary_key=True))

make_append_only(facts, ("timestamp", "fact_pruning"))
version_table("facts", METADATA)

FACTS: Final = Schema(
    name="facts",
    called="the table of facts",
    metadata=METADATA,
    head=HEAD,
    first=(facts,),
    cure="angzarr database upgrade facts",
    setting="facts.migrate",
    waiting="facts",
)
