"""Pruning the tables of event books: rows that nobody needs any more, a few at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, Select, Table, bindparam, delete, select

from angzarr.adapters.sql.delivery.facts import utc
from angzarr.adapters.sql.event_store.rejection_tables import rejected_commands
from angzarr.adapters.sql.event_store.tables import book_decisions
from angzarr.sagas.log import CLOSED

_CLOSED: Final = sorted(status.value for status in CLOSED)


def prune_decisions(connection: Connection, before: datetime, limit: int) -> int:
    """Remove the oldest decisions of before *before* whose events are sent."""
    columns = book_decisions.c
    old = (columns.decided_at < utc(before), columns.unsent_since.is_(None))
    wanted = select(*book_decisions.primary_key).where(*old).order_by(columns.decided_at)
    return _remove(connection, book_decisions, wanted.limit(limit))


def prune_rejections(connection: Connection, before: datetime, limit: int) -> int:
    """Remove closed cases that did not change since *before*, the oldest of a status first.

    One status after the other: asked for all at once, PostgreSQL reads those that are open too.
    """
    columns, removed = rejected_commands.c, 0
    for status in _CLOSED:
        old = (columns.status == status, columns.changed_at < utc(before))
        wanted = select(*rejected_commands.primary_key).where(*old).order_by(columns.changed_at)
        removed += _remove(connection, rejected_commands, wanted.limit(limit - removed))
        if removed == limit:
            break
    return removed


def _remove(connection: Connection, table: Table, wanted: Select[Any]) -> int:
    """Remove the rows whose keys are *wanted*; they are locked, and others' locks passed over."""
    locked = wanted.with_for_update(skip_locked=True)
    keys: Sequence[Mapping[str, Any]] = [
        {f"key_{name}": value for name, value in row.items()}
        for row in connection.execute(locked).mappings()
    ]
    if keys:
        this = [column == bindparam(f"key_{column.name}") for column in table.primary_key]
        connection.execute(delete(table).where(*this), keys)
    return len(keys)
