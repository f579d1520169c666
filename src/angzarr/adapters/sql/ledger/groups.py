"""The groups of the ledger and how their peers fare: one row a group, no page reads entries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    Connection,
    Select,
    and_,
    bindparam,
    case,
    func,
    literal,
    select,
    union_all,
    update,
)

from angzarr.adapters.sql.ledger.column_types import Name, UtcTime, stored_name
from angzarr.adapters.sql.ledger.counts import append_line
from angzarr.adapters.sql.ledger.database import LedgerDatabase
from angzarr.adapters.sql.ledger.paging import begins_with, follows, newest_first
from angzarr.adapters.sql.ledger.tables import (
    LINE,
    SOME_OPEN,
    group_from,
    ledger_counts,
    ledger_entries,
    ledger_group_history,
    ledger_groups,
    line_from,
)
from angzarr.analysis.ledger.counts import MOST, PeerReport, Peers, PeerStats
from angzarr.analysis.ledger.entry import BY_REPLAY, HistoryLine, Status
from angzarr.analysis.ledger.group import (
    OPEN_GROUPS,
    Amendment,
    Group,
    GroupFilter,
    GroupPage,
    Groups,
    amended,
)
from angzarr.analysis.ledger.ledger import LONGEST_PAGE, Cursor, read_cursor
from angzarr.clock import Clock, SystemClock

_columns = ledger_groups.c
#: Filter fields that the column of the same name must equal.
_EQUAL = ("handler_name", "domain", "error_type", "owner", "status")


class SqlGroups(Groups):
    """Groups, counted in the transactions that change entries; safe to use from threads."""

    def __init__(self, database: LedgerDatabase, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()

    def get_groups(
        self, wanted: GroupFilter = OPEN_GROUPS, *, limit: int = 100, after: str = ""
    ) -> GroupPage:
        """A page of groups."""
        limit, conditions = min(limit, LONGEST_PAGE), _conditions(wanted)
        place = (_columns.last_failed_at, _columns.fingerprint)
        if after:
            conditions.append(follows(*place, read_cursor(after)))
        page = newest_first(select(ledger_groups).where(*conditions), *place)
        found = self._database.read(
            lambda connection: _read_groups(connection, page.limit(limit + 1))
        )
        if len(found) <= limit or not found[:limit]:
            return GroupPage(groups=tuple(found[:limit]))
        last = found[limit - 1]
        cursor = Cursor(last.last_failed_at, last.fingerprint)
        return GroupPage(groups=tuple(found[:limit]), next=str(cursor))

    def open_group(self, fingerprint: str) -> Group | None:
        """A group."""
        return self._database.read(lambda connection: _read_group(connection, fingerprint))

    def amend(
        self, fingerprint: str, amendment: Amendment, *, revision: int, by: str
    ) -> Group | None:
        """Change what people say of a group, and tell its history."""
        now = self._clock.now()

        def change(connection: Connection) -> Group | None:
            group = _read_group(connection, fingerprint, lock=True)
            if group is None or group.revision != revision:
                return None
            if (made := amended(group, amendment, now, by)) is None:
                return group
            group, line = made
            words = ("status", "owner", "note", "muted_until", "revision")
            by_name = _columns.fingerprint == group.fingerprint
            values = {word: getattr(group, word) for word in words}
            connection.execute(update(ledger_groups).where(by_name).values(values))
            append_line(connection, group, line)
            return group

        return self._database.write(change, once=True)

    def close(self) -> None:
        """Close the pooled connections."""
        self._database.close()

    def group_history(self, fingerprint: str) -> tuple[HistoryLine, ...]:
        """The history of a group itself."""
        history = ledger_group_history.c
        wanted = select(ledger_group_history).where(history.fingerprint == fingerprint)

        def read(connection: Connection) -> tuple[HistoryLine, ...]:
            rows = connection.execute(wanted.order_by(history.number))
            return tuple(line_from(row, LINE) for row in rows)

        return self._database.read(read)


def _read_group(connection: Connection, fingerprint: str, *, lock: bool = False) -> Group | None:
    wanted = select(ledger_groups).where(_columns.fingerprint == stored_name(fingerprint))
    found = _read_groups(connection, wanted.with_for_update() if lock else wanted)
    return found[0] if found else None


def _read_groups(connection: Connection, wanted: object) -> list[Group]:
    """The groups of a query, each with its entries counted by status."""
    rows = connection.execute(wanted).all()  # type: ignore[call-overload]
    by_status = _by_status(connection, [row.fingerprint for row in rows])
    return [group_from(row, by_status[row.fingerprint]) for row in rows]


def _by_status(connection: Connection, names: Sequence[str]) -> dict[str, dict[str, int]]:
    counts = ledger_counts.c
    sums = (
        select(counts.fingerprint, counts.status, func.sum(counts.entries))
        .where(counts.fingerprint.in_(names), counts.entries != 0)
        .group_by(counts.fingerprint, counts.status)
    )
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for name, status, number in connection.execute(sums) if names else ():
        found[name][status] = int(number)
    return found


def _conditions(wanted: GroupFilter) -> list[ColumnElement[bool]]:
    asked = [(_columns[name], getattr(wanted, name)) for name in _EQUAL]
    conditions = [column == value for column, value in asked if value is not None]
    if wanted.open_only:
        conditions.append(SOME_OPEN)
    if wanted.since is not None:
        conditions.append(_columns.last_failed_at >= wanted.since)
    if wanted.until is not None:
        conditions.append(_columns.last_failed_at < wanted.until)
    if wanted.prefix:
        conditions.append(begins_with(_columns.fingerprint, wanted.prefix))
    return conditions


_entries = ledger_entries.c
_KINDS = {"handler": _entries.handler_name, "group": _entries.fingerprint}
#: Questions that are remembered: of how many handlers and groups they ask.
_SHAPES: Final = 64


class SqlPeers(Peers):
    """Reads the ledger's tables; safe to use from threads."""

    def __init__(self, database: LedgerDatabase) -> None:
        self._database = database

    def fared(
        self, handlers: Collection[str], groups: Collection[str], since: datetime
    ) -> PeerReport:
        """Look at the last entries of each."""
        asked = [("handler", name) for name in handlers] + [("group", name) for name in groups]
        if not asked:
            return PeerReport()
        wanted = _fared(tuple(kind for kind, _ in asked))
        names = {f"name_{number}": stored_name(name) for number, (_, name) in enumerate(asked)}

        def read(connection: Connection) -> dict[tuple[str, str], PeerStats]:
            return {
                asked[row.number]: PeerStats(
                    events=row.events, failed=int(row.failed or 0), handled=int(row.handled or 0)
                )
                for row in connection.execute(wanted, {**names, "since": since})
            }

        found = self._database.read(read)
        return PeerReport(
            handlers={name: fared for (kind, name), fared in found.items() if kind == "handler"},
            groups={name: fared for (kind, name), fared in found.items() if kind == "group"},
        )

    def close(self) -> None:
        """Close the pooled connections."""
        self._database.close()


@lru_cache(_SHAPES)
def _fared(kinds: tuple[str, ...]) -> CompoundSelect[Any]:
    """The question after names of these *kinds*, which are its parameters, like `since`."""
    return union_all(*(_part(kind, number) for number, kind in enumerate(kinds)))


def _part(kind: str, number: int) -> Select[int, int, Any, Any]:
    """The question after one name, answered from the entries that failed last."""
    since = bindparam("since", type_=UtcTime)
    last = (
        select(
            _entries.status,
            _entries.last_failed_at,
            _entries.resolved_by,
            _entries.resolved_at,
        )
        .where(_KINDS[kind] == bindparam(f"name_{number}", type_=Name))
        .order_by(_entries.last_failed_at.desc(), _entries.id.desc())
        .limit(MOST)
        .subquery()
    )
    resolved = last.c.status == Status.RESOLVED.value
    failed = and_(last.c.last_failed_at >= since, ~resolved)
    by_replay = last.c.resolved_by.startswith(BY_REPLAY, autoescape=True)
    handled = and_(resolved, by_replay, last.c.resolved_at >= since)
    return select(
        literal(number).label("number"),
        func.count().label("events"),
        func.sum(case((failed, 1), else_=0)).label("failed"),
        func.sum(case((handled, 1), else_=0)).label("handled"),
    ).select_from(last)
