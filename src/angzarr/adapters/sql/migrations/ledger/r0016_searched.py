"""Indexes by root and by correlation id, so that what failed of one aggregate is found at once."""

from __future__ import annotations

from typing import Any, Final

from alembic import op

from angzarr.adapters.sql.migrations.online import change_indexes

revision = "0016"
down_revision = "0015"

_TABLE: Final = "ledger_entries"
_NEW: Final = {
    "ledger_entries_by_root": ["root", "last_failed_at", "id"],
    "ledger_entries_by_correlation": ["correlation_id", "last_failed_at", "id"],
}


def upgrade() -> None:
    """Make both; older releases do not need them."""
    change_indexes(_change)


def _change(concurrently: dict[str, Any]) -> None:
    for name, columns in _NEW.items():
        op.drop_index(name, _TABLE, if_exists=True, **concurrently)
        op.create_index(name, _TABLE, columns, **concurrently)
