"""Indexes of what is due in each status, and of replay jobs that ended."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

from angzarr.adapters.sql.migrations.online import change_indexes

revision = "0011"
down_revision = "0010"

_WAKES = sa.text("wake_at IS NOT NULL")
_ENDED = sa.text("ended_at IS NOT NULL")
_NEW = (
    ("ledger_entries_due", "ledger_entries", ["status", "wake_at"], _WAKES),
    ("replay_jobs_ended", "replay_jobs", ["ended_at"], _ENDED),
)


def upgrade() -> None:
    """Make the new ones, then drop the old ones."""
    change_indexes(_change)


def _change(concurrently: dict[str, Any]) -> None:
    for name, table, columns, where in _NEW:
        op.drop_index(name, table, if_exists=True, **concurrently)
        op.create_index(
            name, table, columns, postgresql_where=where, sqlite_where=where, **concurrently
        )
    # The release before finds what is due in the new one: it has all that the old one had.
    op.drop_index("ledger_entries_to_wake", "ledger_entries", if_exists=True, **concurrently)
