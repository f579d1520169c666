"""Counting: keeps groups and counts up to date in the transaction that changes entries.

Locks are taken in one order by everybody: entries by id, then groups by fingerprint, then counts by
key. So transactions that meet wait for each other, and never in a circle.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, Row, Table, case, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from angzarr.adapters.sql.ledger.rows import group_from
from angzarr.adapters.sql.ledger.tables import (
    ledger_counts,
    ledger_group_history,
    ledger_groups,
    stored_name,
)
from angzarr.analysis.ledger.counts import (
    Amounts,
    CountKey,
    CountStep,
    Growth,
    counted_by_key,
    growths,
    regressed,
    sample_of,
)
from angzarr.analysis.ledger.entry import Entry, HistoryLine
from angzarr.analysis.ledger.group import GroupStatus

_AMOUNTS = Amounts._fields
_NAMES = ("fingerprint", "domain", "handler_name", "event_type")
_ADDED = ("entries", "open_entries", "occurrences")
_SAMPLE = (
    "handler_name", "domain", "event_type", "reason", "error_type", "error_message",
    "failure_class", "latest_entry_id", "last_failed_at",
)  # fmt: skip


def count(connection: Connection, steps: Sequence[CountStep], now: datetime) -> None:
    """Add what *steps* change to groups and counts; the last thing a transaction does."""
    added = counted_by_key(steps)
    if not all(map(_is_storable, added)):
        steps = [
            CountStep(before and _as_stored(before), after and _as_stored(after), fails)
            for before, after, fails in steps
        ]
        added = counted_by_key(steps)
    touched = {kind.fingerprint for kind in added}
    grow(connection, {name: one for name, one in growths(steps).items() if name in touched}, now)
    write_counts(connection, added)


def key_of(kind: CountKey) -> str:
    """Return the primary key of *kind*'s row, whose names are as they are stored."""
    return hashlib.sha256("\x00".join(kind).encode()).hexdigest()


def append_line(connection: Connection, fingerprint: str, line: HistoryLine) -> None:
    """Add to the history of a group."""
    row = {"at": line.at, "who": line.who, "what": line.what, "detail": line.detail}
    connection.execute(insert(ledger_group_history).values(fingerprint=fingerprint, **row))


def upsert(connection: Connection, table: Table) -> Any:
    """Return an INSERT into *table* of this database's dialect, to be given what conflicts do."""
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    return dialect.insert(table)


def _is_storable(kind: CountKey) -> bool:
    return all(stored_name(name) == name for name in kind)


def _as_stored(entry: Entry) -> Entry:
    """Return *entry* with the names that are counted by as they are stored."""
    names = {name: stored_name(getattr(entry, name)) for name in _NAMES}
    same = all(getattr(entry, name) == stored for name, stored in names.items())
    return entry if same else replace(entry, **names)  # type: ignore[arg-type]


def grow(connection: Connection, grown: Mapping[str, Growth], now: datetime) -> None:
    """Write groups, in the order of their fingerprints; what was fixed and fails regresses."""
    if not grown:
        return
    rows = [_new_row(name, grown[name]) for name in sorted(grown)]
    written = connection.execute(_growing(connection), rows).all()
    fixed = {row.fingerprint for row in written if row.status == GroupStatus.FIXED}
    for name in sorted(fixed):
        if grown[name].fails:
            _regress(connection, name, now)


def _growing(connection: Connection) -> Any:
    """Return the statement that adds a group, or adds to it."""
    statement = upsert(connection, ledger_groups)
    columns, new = ledger_groups.c, statement.excluded
    is_latest = new.last_failed_at >= columns.last_failed_at
    changes: dict[str, Any] = {
        name: case((is_latest, new[name]), else_=columns[name]) for name in _SAMPLE
    }
    changes |= {name: columns[name] + new[name] for name in _ADDED}
    changes["first_failed_at"] = case(
        (new.first_failed_at < columns.first_failed_at, new.first_failed_at),
        else_=columns.first_failed_at,
    )
    return statement.on_conflict_do_update(
        index_elements=[columns.fingerprint], set_=changes
    ).returning(columns.fingerprint, columns.status)


def _new_row(name: str, growth: Growth) -> dict[str, Any]:
    amounts = {added: getattr(growth, added) for added in _ADDED}
    words = {"status": GroupStatus.NEW, "owner": "", "note": "", "muted_until": None}
    return {
        **sample_of(growth.latest),
        **amounts,
        **words,
        "fingerprint": name,
        "first_failed_at": growth.first_failed_at,
        "revision": 1,
    }


def _regress(connection: Connection, fingerprint: str, now: datetime) -> None:
    by_name = ledger_groups.c.fingerprint == fingerprint
    row: Row[Any] = connection.execute(select(ledger_groups).where(by_name)).one()
    if change := regressed(group_from(row, {}), now):
        group, line = change
        words = {"status": group.status, "revision": group.revision}
        connection.execute(update(ledger_groups).where(by_name).values(words))
        append_line(connection, fingerprint, line)


def write_counts(connection: Connection, counted: Mapping[CountKey, Amounts]) -> None:
    """Add *counted* to the counts, in the order of their keys."""
    statement = upsert(connection, ledger_counts)
    new = {name: ledger_counts.c[name] + statement.excluded[name] for name in _AMOUNTS}
    rows = [
        {"key": key_of(kind), **kind._asdict(), **amounts._asdict()}
        for kind, amounts in counted.items()
    ]
    rows.sort(key=itemgetter("key"))
    if rows:
        by_key = [ledger_counts.c.key]
        connection.execute(statement.on_conflict_do_update(index_elements=by_key, set_=new), rows)
