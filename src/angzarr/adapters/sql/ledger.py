"""The ledger on SQLite or PostgreSQL: rows are locked, `transition` decides, rows are written."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import Connection, select
from sqlalchemy.exc import IntegrityError

from angzarr.adapters.sql.ledger_database import LedgerDatabase
from angzarr.adapters.sql.ledger_filing import (
    file_failures,
    lock_entries,
    save_changes,
    save_entries,
)
from angzarr.adapters.sql.ledger_pruning import prune
from angzarr.adapters.sql.ledger_queries import count_all, read_oldest_open, read_page
from angzarr.adapters.sql.ledger_rows import entry_from, failure_from, line_from
from angzarr.adapters.sql.ledger_tables import (
    ledger_entries,
    ledger_history,
    ledger_letters,
)
from angzarr.adapters.sql.order_rows import read_orders, save_orders
from angzarr.analysis import transition
from angzarr.analysis.entry import Entry, EntryDetail, Failure, Status
from angzarr.analysis.filing import Decider
from angzarr.analysis.ledger import (
    ANY,
    EntryFilter,
    FailureStats,
    Ledger,
    Page,
    read_cursor,
)
from angzarr.analysis.marking import Make, Marking
from angzarr.analysis.transition import Change
from angzarr.clock import Clock, SystemClock

#: How often letters are filed anew that another worker files at the same time.
_TRIES: Final = 3


class SqlLedger(Marking, Ledger):
    """Entries, their letters and histories in tables; safe to use from threads."""

    def __init__(self, database: LedgerDatabase, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()

    def add_failed_events(
        self, failures: Sequence[Failure], *, decide: Decider | None = None, by: str = ""
    ) -> list[Entry]:
        """File failures in order, all or none."""
        if not failures:
            return []

        def file(connection: Connection) -> list[Entry]:
            return file_failures(connection, failures, self._clock.now(), decide, by)

        for _ in range(_TRIES - 1):
            try:
                return self._database.write(file)
            except IntegrityError:  # another worker was faster: now its rows are there
                continue
        return self._database.write(file)

    def due(self, *, limit: int, lease: timedelta, besides: Collection[Status] = ()) -> list[Entry]:
        """Take entries whose time has come, passing over those another worker is taking."""
        now = self._clock.now()
        wake_at = ledger_entries.c.wake_at
        woken = select(ledger_entries).where(wake_at <= now).order_by(wake_at).limit(limit)
        if besides:
            woken = woken.where(ledger_entries.c.status.not_in(sorted(besides)))

        def take(connection: Connection) -> list[Entry]:
            rows = connection.execute(woken.with_for_update(skip_locked=True))
            found = [entry_from(row) for row in rows]
            taken = [transition.leased(entry, now + lease) for entry in found]
            save_entries(connection, zip(found, taken, strict=True))
            return taken

        return self._database.write(take)

    def find_by_letter(self, letter_id: str) -> Entry | None:
        """Return the entry in which a letter was filed."""
        owner = select(ledger_history.c.entry_id).where(ledger_history.c.letter_id == letter_id)
        wanted = select(ledger_entries).where(ledger_entries.c.id.in_(owner)).limit(1)

        def find(connection: Connection) -> Entry | None:
            row = connection.execute(wanted).one_or_none()
            return entry_from(row) if row is not None else None

        return self._database.read(find)

    def open(self, entry_id: str) -> EntryDetail | None:
        """Return an entry with its letter and history."""
        return self._database.read(lambda connection: _open(connection, entry_id))

    def get_failed_events(
        self,
        wanted: EntryFilter = ANY,
        *,
        status: Status | None = Status.FAILED,
        limit: int = 100,
        after: str = "",
    ) -> Page:
        """Return a page of entries."""
        behind = read_cursor(after) if after else None
        return self._database.read(
            lambda connection: read_page(connection, wanted, status, limit, behind)
        )

    def oldest_open(self, *, limit: int = 1) -> list[Entry]:
        """Return the open entries that failed first longest ago."""
        return self._database.read(lambda connection: read_oldest_open(connection, limit))

    def prune(self, before: Mapping[Status, datetime], *, limit: int) -> int:
        """Remove entries that were closed long ago."""
        now = self._clock.now()
        return self._database.write(lambda connection: prune(connection, before, limit, now))

    def get_failure_stats(self) -> FailureStats:
        """Count all entries."""
        return self._database.read(count_all)

    def close(self) -> None:
        """Close the pooled connections."""
        self._database.close()

    def _change_all(self, changes: Sequence[tuple[str, Make]]) -> list[Entry | None]:
        return self._database.write(lambda connection: self._apply(connection, changes))

    def _apply(
        self, connection: Connection, changes: Sequence[tuple[str, Make]]
    ) -> list[Entry | None]:
        now, made = self._clock.now(), list[tuple[Entry, Change]]()
        entries = lock_entries(connection, [entry_id for entry_id, _ in changes])
        answers: list[Entry | None] = []
        for entry_id, make in changes:
            entry = entries.get(entry_id)
            change = make(entry, now) if entry else None
            answers.append(change.entry if change else None)
            if entry and change:
                entries[entry_id] = change.entry
                made.append((entry, change))
        save_changes(connection, made, now)
        save_orders(connection, [change for _, change in made])
        return answers


def _open(connection: Connection, entry_id: str) -> EntryDetail | None:
    by_id = ledger_entries.c.id == entry_id
    row = connection.execute(select(ledger_entries).where(by_id)).one_or_none()
    if row is None:
        return None
    letters = select(ledger_letters).where(ledger_letters.c.entry_id == entry_id)
    history = select(ledger_history).where(ledger_history.c.entry_id == entry_id)
    lines = connection.execute(history.order_by(ledger_history.c.number))
    order, before = read_orders(connection, entry_id, row.replays)
    return EntryDetail(
        entry=entry_from(row),
        failure=failure_from(connection.execute(letters).one()),
        history=tuple(line_from(line) for line in lines),
        order=order,
        before=before,
    )
