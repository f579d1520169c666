"""The index of groups has the tenant, so that a rare handler's entries of one are found in it."""

from __future__ import annotations

from typing import Any

from alembic import op

from angzarr.adapters.sql.migrations.online import change_indexes

revision = "0013"
down_revision = "0012"

_NAME, _TABLE = "ledger_entries_of_group", "ledger_entries"
_COLUMNS = ["fingerprint", "status", "last_failed_at", "id", "tenant_id"]


def upgrade() -> None:
    """Make the new one, which serves the release before as well, and drop the old one."""
    change_indexes(_change)


def _change(concurrently: dict[str, Any]) -> None:
    op.drop_index(_NAME, _TABLE, if_exists=True, **concurrently)
    op.create_index(_NAME, _TABLE, _COLUMNS, **concurrently)
    op.drop_index("ledger_entries_by_group", _TABLE, if_exists=True, **concurrently)
