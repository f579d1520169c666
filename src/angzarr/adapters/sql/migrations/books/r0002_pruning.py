"""Indexes by which decisions and rejected commands that are old enough are found."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

from angzarr.adapters.sql.migrations.books import r0001_first_tables
from angzarr.adapters.sql.migrations.online import change_indexes

revision = "0002"
down_revision = "0001"

_SENT = "ix_book_decisions_sent"
_CHANGED = "ix_rejected_commands_changed"


def upgrade() -> None:
    """Make them, and first what is missing where one part of the tables was never used."""
    r0001_first_tables.upgrade()
    change_indexes(_change)


def _change(concurrently: dict[str, Any]) -> None:
    where = sa.text("unsent_since IS NULL")
    op.drop_index(_SENT, "book_decisions", if_exists=True, **concurrently)
    op.create_index(
        _SENT, "book_decisions", ["decided_at"],
        postgresql_where=where, sqlite_where=where, **concurrently,
    )  # fmt: skip
    op.drop_index(_CHANGED, "rejected_commands", if_exists=True, **concurrently)
    op.create_index(_CHANGED, "rejected_commands", ["status", "changed_at"], **concurrently)
