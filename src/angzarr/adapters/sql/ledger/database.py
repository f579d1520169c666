"""LedgerDatabase: the database of the ledger and its companions, its upkeep and its pruning."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, Engine, and_, delete, exists, or_, select

from angzarr.adapters.sql.engine.engine import ENGINES, patient
from angzarr.adapters.sql.engine.schema import SchemaDatabase, SqlTablesUpkeep
from angzarr.adapters.sql.ledger.counts import count, recount
from angzarr.adapters.sql.ledger.letter_holds import holds_of, release
from angzarr.adapters.sql.ledger.schema import LEDGER, replay_job_items, replay_jobs
from angzarr.adapters.sql.ledger.tables import (
    entry_from,
    ledger_counts,
    ledger_entries,
    ledger_groups,
    ledger_history,
)
from angzarr.analysis.ledger.counts import CountStep
from angzarr.analysis.ledger.entry import Status
from angzarr.analysis.ledger.upkeep import LedgerUpkeep, Recounted
from angzarr.analysis.replay.job import ENDED


class LedgerDatabase(SchemaDatabase):
    """Transactions on the ledger's tables; they raise LedgerUnavailable."""

    def __init__(
        self, engine: Engine, *, migrate: bool = True, close: Callable[[], None] | None = None
    ) -> None:
        super().__init__(LEDGER, engine, migrate=migrate, close=close)


def open_database(url: str, *, migrate: bool = True) -> LedgerDatabase:
    """The database at *url*, which shares its connections with others of this process."""
    lent = ENGINES.borrow(url)
    return LedgerDatabase(lent.engine, migrate=migrate, close=lent.close)


class SqlUpkeep(SqlTablesUpkeep, LedgerUpkeep):
    """Looks after the ledger's tables and counts; nothing is changed that was not asked for."""

    def __init__(self, database: LedgerDatabase) -> None:
        super().__init__(LEDGER, database.engine, database.close)

    def recount(self, *, fix: bool) -> Iterator[Recounted]:
        """Compare and fix; refuses tables that are not those of this release."""
        LEDGER.make_ready(self._engine, migrate=False)
        with patient(self._engine) as slow:
            yield from recount(slow, fix=fix)


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
    held = holds_of(connection, ids)
    connection.execute(delete(ledger_entries).where(_columns.id.in_(ids)))
    release(connection, held)
    count(connection, [CountStep(entry, None) for entry in entries], now)
    _forget(connection, sorted({entry.fingerprint for entry in entries}))
    return len(entries)


def _done_with(before: Mapping[Status, datetime]) -> Sequence[ColumnElement[bool]]:
    """The conditions under which an entry may go.

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
    """Remove groups without entries that no person edited, and empty counts."""
    counts, groups = ledger_counts.c, ledger_groups.c
    none = (counts.entries == 0, counts.occurrences == 0, counts.replays == 0)
    connection.execute(delete(ledger_counts).where(counts.fingerprint.in_(names), *none))
    empty = (groups.entries == 0, groups.revision == 1)
    connection.execute(delete(ledger_groups).where(groups.fingerprint.in_(names), *empty))
