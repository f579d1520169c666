"""Questions to the ledger's tables: pages, counts, and what is due.

What is due is read from one index a status, whatever sleeps on beside it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, TypeAlias

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Select,
    Subquery,
    and_,
    false,
    func,
    select,
    text,
)
from sqlalchemy.sql.base import ReadOnlyColumnCollection

from angzarr.adapters.sql.ledger.paging import (
    NEWEST,
    Parts,
    begins_with,
    follows,
    merged,
    names_few,
    newest_first,
    oldest_of_newest,
    parts_of,
)
from angzarr.adapters.sql.ledger.tables import (
    OPEN_ONLY,
    entry_from,
    ledger_counts,
    ledger_entries,
    ledger_groups,
)
from angzarr.analysis.ledger.entry import Entry, Status
from angzarr.analysis.ledger.ledger import (
    EXACT,
    LONGEST_PAGE,
    Cursor,
    EntryFilter,
    EntryPage,
    FailureStats,
    entry_page_of,
)
from angzarr.analysis.ledger.transition import WAKES
from angzarr.errors import LedgerUnavailable

Columns: TypeAlias = ReadOnlyColumnCollection[str, Column[Any]]

#: Oldest entries among which those of muted groups are passed over: what takes some tenths of a
#: second.
LOOKED_THROUGH: Final = 100_000

#: Columns with an index, whose values many entries share.
_BROAD: Final = frozenset({"status", "handler_name", "fingerprint", "tenant_id"})
_HEX: Final = re.compile("[0-9a-f]{1,64}")
#: Whether this PostgreSQL orders hexadecimal as bytes: few languages do not ("aa" is å in Danish).
_PLAIN_ORDER: Final = text(
    'SELECT bool_and(hex < next) FROM (SELECT hex, lead(hex) OVER (ORDER BY hex COLLATE "C")'
    " AS next FROM (SELECT lpad(to_hex(n), 3, '0') AS hex FROM generate_series(0, 4095) AS n) AS a"
    ") AS b WHERE next IS NOT NULL"
)


def read_page(
    connection: Connection,
    wanted: EntryFilter,
    status: Status | None,
    limit: int,
    behind: Cursor | None,
) -> EntryPage:
    """The entries that follow *behind*, the one that failed last first."""
    limit = min(limit, LONGEST_PAGE)
    parts = parts_of(connection, wanted, status)
    if parts and parts.many and behind is None and wanted.since is None:
        since = oldest_of_newest(connection, status)
        lately = _read(connection, replace(wanted, since=since), status, limit)
        if lately.next or since is None:
            return lately
    return _read(connection, wanted, status, limit, behind=behind, parts=parts)


def _read(
    connection: Connection,
    wanted: EntryFilter,
    status: Status | None,
    limit: int,
    *,
    behind: Cursor | None = None,
    parts: Parts | None = None,
) -> EntryPage:
    """Read a page, merged from *parts* or else in the order of one index."""
    entries = ledger_entries.c
    columns = NEWEST.c if parts else entries
    by = parts.column if parts else ""
    conditions = conditions_of(connection, columns, _not_had(wanted, parts), status, by=by)
    if behind is not None:
        conditions.append(follows(columns.last_failed_at, columns.id, behind))
    rows = (
        merged(connection, parts, conditions, limit + 1).where(*_had(parts, wanted))
        if parts
        else select(ledger_entries).where(*conditions)
    )
    page = newest_first(rows, entries.last_failed_at, entries.id).limit(limit + 1)
    return entry_page_of([entry_from(row) for row in connection.execute(page)], limit)


def _not_had(wanted: EntryFilter, parts: Parts | None) -> EntryFilter:
    """*wanted* without what all entries of *parts* have: it need not be read of each."""
    nothing: dict[str, Any] = dict.fromkeys(parts.had if parts else ())
    return replace(wanted, **nothing)


def _had(parts: Parts, wanted: EntryFilter) -> list[ColumnElement[bool]]:
    """The same of the entries that were found, for those that changed just now."""
    asked = ((ledger_entries.c[name], getattr(wanted, name)) for name in parts.had)
    return [column == value for column, value in asked if value is not None]


def read_oldest_open(
    connection: Connection, limit: int, unmuted_at: datetime | None = None
) -> list[Entry]:
    """The open entries that failed first longest ago.

    With *unmuted_at* those of groups that are muted then are passed over, among `LOOKED_THROUGH`.
    """
    oldest = _oldest(connection, limit if unmuted_at is None else LOOKED_THROUGH)
    wanted = select(oldest).order_by(oldest.c.first_failed_at).limit(limit)
    if unmuted_at is not None:
        muted = select(ledger_groups.c.fingerprint)
        muted = muted.where(ledger_groups.c.muted_until > unmuted_at)
        wanted = wanted.where(oldest.c.fingerprint.not_in(muted))
    return [entry_from(row) for row in connection.execute(wanted)]


def _oldest(connection: Connection, limit: int) -> Subquery:
    """So many open entries, from the index of open ones; SQLite would rather sort all."""
    hint = " INDEXED BY ledger_entries_open_since" if connection.dialect.name == "sqlite" else ""
    names = ", ".join(column.name for column in ledger_entries.c)
    oldest = text(
        f"SELECT {names} FROM ledger_entries{hint} WHERE {OPEN_ONLY.text}"  # noqa: S608 - ours
        " ORDER BY first_failed_at LIMIT :most"
    )
    return oldest.bindparams(most=limit).columns(*ledger_entries.c).subquery("oldest")


def count_all(connection: Connection) -> FailureStats:
    """The numbers of entries of each kind, without reading them."""
    counts = ledger_counts.c
    kinds = (counts.status, counts.failure_class, counts.domain, counts.handler_name)
    sums = (func.sum(counts.entries), func.sum(counts.occurrences), func.sum(counts.replays))
    found = connection.execute(select(*kinds, *sums).group_by(*kinds)).all()
    rows = [tuple(row) for row in found if row[4]]
    by_status, by_class, by_domain, by_handler = (_summed(rows, place) for place in range(4))
    return FailureStats(
        total=sum(by_status.values()),
        by_status=by_status,
        by_class=by_class,
        by_domain=by_domain,
        by_handler=by_handler,
        occurrences=sum(int(row[5]) for row in rows),
        replays=sum(int(row[6]) for row in rows),
        oldest_open_at=_oldest_open(connection),
    )


def _oldest_open(connection: Connection) -> datetime | None:
    """The first failure of the oldest open entry."""
    found: datetime | None = connection.scalar(select(_oldest(connection, 1).c.first_failed_at))
    return found


def _summed(rows: list[tuple[Any, ...]], place: int) -> dict[str, int]:
    sums: Counter[str] = Counter()
    for row in rows:
        sums[row[place]] += int(row[4])
    return dict(sums)


def conditions_of(
    connection: Connection,
    columns: Columns,
    wanted: EntryFilter,
    status: Status | None,
    *,
    by: str = "",
) -> list[ColumnElement[bool]]:
    """The conditions under which an entry is one of *wanted* in *status* (None: any).

    *by* is the column of the index in whose order entries are read, if that is to be.
    """
    asked: dict[str, Any] = {name: getattr(wanted, name) for name in EXACT} | {"status": status}
    passed_by: AbstractSet[str] = frozenset()
    if names_few(wanted):
        # SQLite would rather look through all of a handler, or of a status, in order.
        passed_by = _BROAD
    elif by == "fingerprint" and connection.dialect.name == "sqlite":
        # It would rather sort all that a tenant has in a status, for each group anew.
        passed_by = frozenset({"tenant_id"})
    conditions: list[ColumnElement[bool]] = [
        (columns[name] + "" if name in passed_by else columns[name]) == value
        for name, value in asked.items()
        if value is not None
    ]
    if wanted.since is not None:
        conditions.append(columns.last_failed_at >= wanted.since)
    if wanted.until is not None:
        conditions.append(columns.last_failed_at < wanted.until)
    if wanted.id_prefix:
        conditions.append(_id_begins(connection, columns.id, wanted.id_prefix))
    return conditions


def _id_begins(
    connection: Connection, column: ColumnElement[str], beginning: str
) -> ColumnElement[bool]:
    """A range of the primary key, where its order is that of bytes; ids are hexadecimal."""
    if not _HEX.fullmatch(beginning):
        return false()
    plain = connection.dialect.name == "sqlite" or connection.scalar(_PLAIN_ORDER)
    if not plain:
        return begins_with(column, beginning)
    return and_(column >= beginning, column < f"{beginning}g")


#: SQLSTATE of a statement that was ended for its time.
_CANCELED: Final = "57014"


@contextmanager
def within_time() -> Iterator[None]:
    """Raise LedgerUnavailable for a page that took too long, with the advice to narrow it.

    The bound is PostgreSQL's; SQLite goes on until it is through.
    """
    try:
        yield
    except LedgerUnavailable as error:
        if not _is_canceled(error):
            raise
        msg = (
            "the page took longer than a statement may, as nothing but a look at all entries"
            " answers what was asked: name a span of time (since, until), a handler, a domain, an"
            " event type, a group or a tenant besides"
        )
        raise LedgerUnavailable(msg) from error


def _is_canceled(error: LedgerUnavailable) -> bool:
    said: Any = getattr(error.__cause__, "orig", None)
    return getattr(said, "sqlstate", None) == _CANCELED


_columns = ledger_entries.c


def lock_due(
    connection: Connection, now: datetime, limit: int, besides: Collection[Status]
) -> list[Entry]:
    """Lock the entries that are due, the longest overdue first; others' locks are passed over.

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
