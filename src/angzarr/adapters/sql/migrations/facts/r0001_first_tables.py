"""The table of facts, as it was first: without a revision, and open to changes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_INDEXES = {
    "ix_facts_timestamp": ["timestamp"],
    "ix_facts_entity_id": ["entity_id"],
    "ix_facts_tool_id": ["tool_id"],
    "ix_facts_kind": ["type", "subtype"],
}


def upgrade() -> None:
    """Make it."""
    number = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    op.create_table(
        "facts",
        sa.Column("position", number, primary_key=True),
        sa.Column("id", sa.Text, nullable=False, unique=True),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("type", "subtype")),
        sa.Column("timestamp", sa.DateTime(timezone=True), nullable=False),
        *map(_text, ("tenant_id", "entity_id", "tool_id")),
        *map(_text, ("asset_id", "config_id", "config_version")),
        sa.Column("data", sa.JSON, nullable=False),
    )
    for name, columns in _INDEXES.items():
        op.create_index(name, "facts", columns)


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text)
