"""Questions to the ledger's tables: one page, all counts."""

from __future__ import annotations

from sqlalchemy import ColumnElement, Connection, Select, and_, func, or_, select

from angzarr.adapters.sql.ledger_rows import entry_from
from angzarr.adapters.sql.ledger_tables import ledger_entries
from angzarr.analysis.entry import Status
from angzarr.analysis.ledger import (
    EXACT,
    LONGEST_PAGE,
    OPEN,
    Cursor,
    EntryFilter,
    FailureStats,
    Page,
    page_of,
)

_columns = ledger_entries.c


def read_page(
    connection: Connection,
    wanted: EntryFilter,
    status: Status | None,
    limit: int,
    behind: Cursor | None,
) -> Page:
    """Return the entries that follow *behind*, the one that failed last first."""
    limit = min(limit, LONGEST_PAGE)
    conditions = conditions_of(wanted)
    if status is not None:
        conditions.append(_columns.status == status)
    if behind is not None:
        conditions.append(_follows(behind))
    rows = connection.execute(_newest_first(conditions).limit(limit + 1))
    return page_of([entry_from(row) for row in rows], limit)


def count_all(connection: Connection) -> FailureStats:
    """Return how many entries there are, of which kind."""
    total, occurrences, replays = connection.execute(
        select(
            func.count(),
            func.coalesce(func.sum(_columns.occurrences), 0),
            func.coalesce(func.sum(_columns.replays), 0),
        ).select_from(ledger_entries)
    ).one()
    oldest = select(_columns.first_failed_at).where(_columns.status.in_(sorted(OPEN)))
    return FailureStats(
        total=total,
        by_status=_count_by(connection, _columns.status),
        by_class=_count_by(connection, _columns.failure_class),
        by_domain=_count_by(connection, _columns.domain),
        by_handler=_count_by(connection, _columns.handler_name),
        occurrences=int(occurrences),
        replays=int(replays),
        oldest_open_at=connection.scalar(oldest.order_by(_columns.first_failed_at).limit(1)),
    )


def _newest_first(conditions: list[ColumnElement[bool]]) -> Select[tuple[object, ...]]:
    order = (_columns.last_failed_at.desc(), _columns.id.desc())
    return select(ledger_entries).where(*conditions).order_by(*order)


def conditions_of(wanted: EntryFilter) -> list[ColumnElement[bool]]:
    """Return what an entry must fulfil to be one of *wanted*."""
    asked = [(_columns[name], getattr(wanted, name)) for name in EXACT]
    conditions = [column == value for column, value in asked if value is not None]
    if wanted.since is not None:
        conditions.append(_columns.last_failed_at >= wanted.since)
    if wanted.until is not None:
        conditions.append(_columns.last_failed_at < wanted.until)
    if wanted.id_prefix:
        conditions.append(_columns.id.startswith(wanted.id_prefix, autoescape=True))
    return conditions


def _follows(behind: Cursor) -> ColumnElement[bool]:
    same_time = _columns.last_failed_at == behind.last_failed_at
    return and_(
        _columns.last_failed_at <= behind.last_failed_at,  # what the index can use
        or_(
            _columns.last_failed_at < behind.last_failed_at,
            and_(same_time, _columns.id < behind.entry_id),
        ),
    )


def _count_by(connection: Connection, column: ColumnElement[str]) -> dict[str, int]:
    rows = connection.execute(select(column, func.count()).group_by(column))
    return {value or "": number for value, number in rows}
