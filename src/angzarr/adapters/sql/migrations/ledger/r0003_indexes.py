"""Fewer indexes that serve more questions, made while workers go on filing."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

from angzarr.adapters.sql.migrations.online import change_indexes

revision = "0003"
down_revision = "0002"

_ENTRIES = "ledger_entries"
_PLACE = ["last_failed_at", "id"]
_WHERE = {
    "ledger_entries_to_wake": "wake_at IS NOT NULL",
    "ledger_entries_open_since": "status IN ('escalated', 'failed', 'held', 'retrying', 'waiting')",
    "ledger_entries_closed": "resolved_at IS NOT NULL",
}
_NEW = {
    "ledger_entries_by_group": ["fingerprint", "status", *_PLACE],
    "ledger_entries_by_tenant_status": ["tenant_id", "status", *_PLACE],
    "ledger_entries_to_wake": ["wake_at"],
    "ledger_entries_open_since": ["first_failed_at"],
    "ledger_entries_closed": ["resolved_at"],
}
_OLD = ("domain", "event_type", "tenant", "wake")


def upgrade() -> None:
    """Make the new ones, then drop the old ones."""
    change_indexes(_change)


def _change(concurrently: dict[str, Any]) -> None:
    for name, columns in _NEW.items():
        op.drop_index(name, _ENTRIES, if_exists=True, **concurrently)
        where = sa.text(_WHERE[name]) if name in _WHERE else None
        op.create_index(
            name, _ENTRIES, columns, postgresql_where=where, sqlite_where=where, **concurrently
        )
    for name in _OLD:
        op.drop_index(f"ledger_entries_by_{name}", _ENTRIES, if_exists=True, **concurrently)
