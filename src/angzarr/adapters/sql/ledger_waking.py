"""What is due in the ledger's tables, each status from one index, whatever sleeps on beside it."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Select, select

from angzarr.adapters.sql.ledger_rows import entry_from
from angzarr.adapters.sql.ledger_tables import ledger_entries
from angzarr.analysis.entry import Entry, Status
from angzarr.analysis.transition import WAKES

_columns = ledger_entries.c


def lock_due(
    connection: Connection, now: datetime, limit: int, besides: Collection[Status]
) -> list[Entry]:
    """Return what is due, the longest overdue first, and lock it; others' locks are passed over.

    Each status is asked for by itself. In one question those that sleep on, which may be nearly
    all, would be read and passed over each time.
    """
    found = [
        entry_from(row)
        for status in sorted(WAKES - set(besides))
        for row in connection.execute(_due(status, now, limit))
    ]
    return sorted(found, key=lambda entry: (entry.wake_at or now, entry.id))[:limit]


def _due(status: Status, now: datetime, limit: int) -> Select[Any]:
    due = (_columns.status == status, _columns.wake_at <= now)
    longest_ago = select(ledger_entries).where(*due).order_by(_columns.wake_at).limit(limit)
    return longest_ago.with_for_update(skip_locked=True)
