"""Pruning the ledger's tables: closed entries with their letters and histories, a few at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, and_, delete, exists, or_, select

from angzarr.adapters.sql.ledger.counting import count
from angzarr.adapters.sql.ledger.job_tables import replay_job_items, replay_jobs
from angzarr.adapters.sql.ledger.rows import entry_from
from angzarr.adapters.sql.ledger.tables import (
    ledger_counts,
    ledger_entries,
    ledger_groups,
    ledger_history,
)
from angzarr.analysis.ledger.counts import CountStep
from angzarr.analysis.ledger.entry import Status
from angzarr.analysis.replay.job import ENDED

_columns = ledger_entries.c
#: The job of an item is not done.
_UNDER_WAY = and_(
    replay_jobs.c.id == replay_job_items.c.job_id, replay_jobs.c.status.not_in(sorted(ENDED))
)


def prune(
    connection: Connection, before: Mapping[Status, datetime], limit: int, now: datetime
) -> int:
    """Remove entries that *before* allows; they are locked, and others' locks passed over."""
    wanted = select(ledger_entries).where(*_done_with(before))
    wanted = wanted.order_by(_columns.resolved_at).limit(limit).with_for_update(skip_locked=True)
    entries = [entry_from(row) for row in connection.execute(wanted)]
    if not entries:
        return 0
    ids = [entry.id for entry in entries]
    connection.execute(delete(ledger_entries).where(_columns.id.in_(ids)))
    count(connection, [CountStep(entry, None) for entry in entries], now)
    _forget(connection, sorted({entry.fingerprint for entry in entries}))
    return len(entries)


def _done_with(before: Mapping[Status, datetime]) -> Sequence[ColumnElement[bool]]:
    """Return what must hold of an entry before it may go.

    Whatever refers to entries and is not finished, as replay jobs, has its condition here.
    """
    lately = ledger_history.c
    allowed = [
        and_(
            _columns.status == status,
            _columns.resolved_at < end,
            # Archiving keeps the time at which an entry was resolved; its history knows better.
            ~exists().where(lately.entry_id == _columns.id, lately.at >= end),
        )
        for status, end in before.items()
    ]
    latest = max(before.values())
    free = ~exists().where(replay_job_items.c.entry_id == _columns.id, _UNDER_WAY)
    return (_columns.resolved_at < latest, _columns.wake_at.is_(None), or_(*allowed), free)


def _forget(connection: Connection, names: Sequence[str]) -> None:
    """Remove groups that have no entries and of which nobody said anything, and empty counts."""
    counts, groups = ledger_counts.c, ledger_groups.c
    none = (counts.entries == 0, counts.occurrences == 0, counts.replays == 0)
    connection.execute(delete(ledger_counts).where(counts.fingerprint.in_(names), *none))
    empty = (groups.entries == 0, groups.revision == 1)
    connection.execute(delete(ledger_groups).where(groups.fingerprint.in_(names), *empty))
