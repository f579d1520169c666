"""Pruning replay jobs: first their entries, a few at a time, then the job with its history."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, delete, exists, func, select

from angzarr.adapters.sql.ledger.job_tables import (
    replay_job_edits,
    replay_job_history,
    replay_job_items,
    replay_jobs,
)
from angzarr.adapters.sql.ledger.tables import ledger_groups

_jobs, _items = replay_jobs.c, replay_job_items.c


def prune(connection: Connection, before: datetime, limit: int) -> int:
    """Remove up to *limit* rows of entries and jobs; jobs that others prune are passed over."""
    removed = 0
    while removed < limit and (job_id := _next(connection, before)):
        left = limit - removed
        entries = _remove_entries(connection, job_id, left)
        removed += entries
        if entries < left:
            _remove(connection, job_id)
            removed += 1
    return removed


def _next(connection: Connection, before: datetime) -> str | None:
    """Return the job that ended longest ago and may go, locked."""
    answered = _jobs.handled + _jobs.failed + _jobs.unanswered
    looked_after = exists().where(
        ledger_groups.c.fingerprint == _jobs.fingerprint, ledger_groups.c.open_entries > 0
    )
    gone = (_jobs.ended_at < before, _jobs.sent <= answered, ~looked_after)
    wanted = select(_jobs.id).where(*gone).order_by(_jobs.ended_at, _jobs.id).limit(1)
    found: str | None = connection.scalar(wanted.with_for_update(skip_locked=True, of=replay_jobs))
    return found


def _remove_entries(connection: Connection, job_id: str, limit: int) -> int:
    mine = _items.job_id == job_id
    first = connection.scalar(select(func.min(_items.position)).where(mine))
    if first is None:
        return 0
    some = delete(replay_job_items).where(mine, _items.position < first + limit)
    return connection.execute(some).rowcount


def _remove(connection: Connection, job_id: str) -> None:
    connection.execute(delete(replay_job_edits).where(replay_job_edits.c.job_id == job_id))
    connection.execute(delete(replay_job_history).where(replay_job_history.c.job_id == job_id))
    connection.execute(delete(replay_jobs).where(_jobs.id == job_id))
