"""Facts are kept as they are, name event, trace and cost, and are asked fast."""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa
from alembic import op

from angzarr.adapters.sql.engine.append_only import guards
from angzarr.adapters.sql.migrations.columns import add_missing
from angzarr.adapters.sql.migrations.online import change_indexes

revision = "0002"
down_revision = "0001"

_TEXTS: Final = ("event_id", "trace_id", "resolves", "currency", "from_entity", "to_entity")
_OLD: Final = ("ix_facts_entity_id", "ix_facts_tool_id", "ix_facts_kind")
#: By name: columns, and the column without which a row has no place in it.
_NEW: Final = {
    "ix_facts_by_kind": (["type", "subtype", "timestamp"], None),
    "ix_facts_by_tenant": (["tenant_id", "timestamp"], "tenant_id"),
    "ix_facts_by_entity": (["entity_id", "timestamp"], "entity_id"),
    "ix_facts_by_tool": (["tool_id", "timestamp"], "tool_id"),
    "ix_facts_by_event": (["event_id"], "event_id"),
    "ix_facts_by_trace": (["trace_id"], "trace_id"),
    "ix_facts_by_resolved": (["resolves"], "resolves"),
    "ix_facts_costs": (["tenant_id", "timestamp"], "amount"),
}


def upgrade() -> None:
    """Add columns, which costs no rewrite of the table, and guards; older releases go on adding."""
    dialect = op.get_bind().dialect.name
    amount = sa.Text() if dialect == "sqlite" else sa.Numeric()
    texts = (sa.Column(name, sa.Text) for name in _TEXTS)
    add_missing("facts", *texts, sa.Column("amount", amount))
    op.create_table(
        "fact_pruning",
        sa.Column("until", sa.DateTime(timezone=True), primary_key=True),
        if_not_exists=True,
    )
    for statement in guards("facts", dialect, ("timestamp", "fact_pruning")):
        op.execute(statement)
    change_indexes(_change)


def _change(concurrently: dict[str, Any]) -> None:
    for name, (columns, needed) in _NEW.items():
        where = None if needed is None else sa.text(f"{needed} IS NOT NULL")
        op.drop_index(name, "facts", if_exists=True, **concurrently)
        op.create_index(
            name, "facts", columns, postgresql_where=where, sqlite_where=where, **concurrently
        )
    for name in _OLD:
        op.drop_index(name, "facts", if_exists=True, **concurrently)
