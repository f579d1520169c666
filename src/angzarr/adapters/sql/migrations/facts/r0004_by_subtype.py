"""Facts are asked by their subtype alone, whatever their type."""

from __future__ import annotations

from typing import Any, Final

from alembic import op

from angzarr.adapters.sql.migrations.online import change_indexes

revision = "0004"
down_revision = "0003"

_NAME: Final = "ix_facts_by_subtype"


def upgrade() -> None:
    """Make the index; the release before does not need it."""
    change_indexes(_change)


def _change(concurrently: dict[str, Any]) -> None:
    op.drop_index(_NAME, "facts", if_exists=True, **concurrently)
    op.create_index(_NAME, "facts", ["subtype", "timestamp"], **concurrently)
