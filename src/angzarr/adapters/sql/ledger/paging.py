"""Pages of entries, newest first, each part read from an index.

Handler, domain, event type and class are those of a group. The counts say which groups have such
entries in which status, and each (group, status) is in page order in one index. So that index
serves every filter of these fields, where each would need one of its own with every other.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    Subquery,
    and_,
    func,
    literal,
    not_,
    or_,
    select,
    true,
    union_all,
)

from angzarr.adapters.sql.ledger.tables import ledger_counts, ledger_entries
from angzarr.analysis.ledger.entry import Status
from angzarr.analysis.ledger.ledger import Cursor, EntryFilter


def newest_first(
    rows: Select[Any], at: ColumnElement[Any], name: ColumnElement[Any]
) -> Select[Any]:
    """*rows* in the order of pages."""
    return rows.order_by(at.desc(), name.desc())


def follows(
    at: ColumnElement[Any], name: ColumnElement[Any], behind: Cursor
) -> ColumnElement[bool]:
    """The condition that a row comes after *behind*."""
    return and_(
        at <= behind.last_failed_at,  # what an index can use
        or_(at < behind.last_failed_at, and_(at == behind.last_failed_at, name < behind.entry_id)),
    )


def begins_with(column: ColumnElement[str], beginning: str) -> ColumnElement[bool]:
    """The condition that *column* begins so, to the letter; no index serves it."""
    return func.substr(column, 1, len(beginning)) == beginning


#: Fields of a filter that are counted, so that they lead to groups.
_COUNTED: Final = ("handler_name", "domain", "event_type", "fingerprint", "failure_class")
#: Fields of a filter whose values few entries share; each has an index of its own.
_RARE: Final = ("event_id", "root", "correlation_id")
#: The entries that a merged page is looked for among.
NEWEST: Final = ledger_entries.alias("newest")
#: Parts of a page at most. Where more match, so do many entries: the newest of them are soon found
#: among all.
_MOST: Final = 200
#: Parts from which a page is merged at once.
_SOME: Final = 50
#: Entries among which a page of more parts is looked for first.
_NEWEST: Final = 5_000
#: A tenant with fewer entries than this is looked through whole.
_FEW: Final = 5_000


class Parts(NamedTuple):
    """Values of `column` with statuses, in which everything is that a page may show."""

    column: str
    #: Rows of name and status.
    rows: Subquery
    number: int
    #: Fields of the filter that all entries of these parts have: none need be read for them.
    had: tuple[str, ...] = ()

    @property
    def many(self) -> bool:
        """Whether so much belongs to them that the newest of all are worth a look first."""
        return self.number > _SOME


def names_few(wanted: EntryFilter) -> bool:
    """True if few entries have what *wanted* asks for, and an index that leads to them."""
    return bool(wanted.id_prefix) or any(getattr(wanted, name) is not None for name in _RARE)


def parts_of(connection: Connection, wanted: EntryFilter, status: Status | None) -> Parts | None:
    """The parts of which the page is merged; None where one index has it in order, or nearly."""
    if names_few(wanted):
        return None
    if wanted.tenant_id is not None and _has_few(connection, wanted.tenant_id):
        return None if status is not None else _by_tenant(wanted.tenant_id)
    if any(getattr(wanted, name) is not None for name in _COUNTED):
        return _by_group(connection, wanted, status)
    if wanted.tenant_id is not None and status is None:
        return _by_tenant(wanted.tenant_id)
    return None


def merged(
    connection: Connection, parts: Parts, conditions: Sequence[ColumnElement[bool]], limit: int
) -> Select[Any]:
    """The entries among which the first *limit* are that *conditions* of NEWEST ask for."""
    newest, rows = NEWEST.c, parts.rows
    here = (newest[parts.column] == rows.c.name, newest.status == rows.c.status)
    if connection.dialect.name == "postgresql":
        first = select(newest.id, newest.last_failed_at).where(*here, *conditions)
        each = newest_first(first, newest.last_failed_at, newest.id).limit(limit).lateral()
        some = select(each.c.id).select_from(rows.join(each, true()))
        ids = newest_first(some, each.c.last_failed_at, each.c.id).limit(limit)
        return select(ledger_entries).where(ledger_entries.c.id.in_(ids))
    first = select(newest.id).where(*here, *conditions)  # SQLite has no LATERAL
    ids = newest_first(first, newest.last_failed_at, newest.id).limit(limit).correlate(rows)
    return select(ledger_entries).select_from(
        rows.join(ledger_entries, ledger_entries.c.id.in_(ids))
    )


def oldest_of_newest(connection: Connection, status: Status | None) -> datetime | None:
    """The time at which the last of the newest entries failed; None: there are not so many."""
    at = ledger_entries.c.last_failed_at
    newest = select(at).order_by(at.desc()).offset(_NEWEST).limit(1)
    if status is not None:
        newest = newest.where(ledger_entries.c.status == status)
    return connection.scalar(newest)


def _by_group(connection: Connection, wanted: EntryFilter, status: Status | None) -> Parts | None:
    counts = ledger_counts.c
    asked = [(counts[name], getattr(wanted, name)) for name in _COUNTED]
    fields = and_(*(column == value for column, value in asked if value is not None))
    there = [counts.entries > 0, *([counts.status == status] if status is not None else [])]
    rows = select(counts.fingerprint.label("name"), counts.status).where(*there, fields).distinct()
    found = select(func.count()).select_from(rows.limit(_MOST + 1).subquery())
    number = connection.scalar(found) or 0
    if number > _MOST:
        return None
    if connection.dialect.name == "sqlite":  # it would find what is looked at twice by that
        return Parts("fingerprint", rows.subquery(), number)
    theirs = counts.fingerprint.in_(select(rows.subquery().c.name))
    mixed = connection.scalar(select(counts.key).where(*there, theirs, not_(fields)).limit(1))
    return Parts("fingerprint", rows.subquery(), number, _COUNTED if mixed is None else ())


def _by_tenant(tenant: str) -> Parts:
    rows = [
        select(literal(tenant).label("name"), literal(one.value).label("status")) for one in Status
    ]
    return Parts("tenant_id", union_all(*rows).subquery(), len(rows))


def _has_few(connection: Connection, tenant: str) -> bool:
    some = select(ledger_entries.c.id).where(ledger_entries.c.tenant_id == tenant).limit(_FEW)
    return (connection.scalar(select(func.count()).select_from(some.subquery())) or 0) < _FEW
