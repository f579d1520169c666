"""Groups and counts: kept up to date with each change of entries, and recounted on demand.

All transactions take locks in one order: entries by id, then groups by fingerprint, then counts by
key. So they wait for each other, but never in a circle.

A recount compares groups and counts with the entries and corrects them. Comparing locks nothing: it
sees all tables at one moment. A correction locks the group, and each transaction that changes one
of its entries waits; so its count is right.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache, partial
from operator import itemgetter
from typing import Any, Final

from sqlalchemy import (
    Connection,
    Engine,
    Row,
    case,
    delete,
    func,
    insert,
    select,
    union,
    update,
)

from angzarr.adapters.sql.engine.engine import in_transaction, reading
from angzarr.adapters.sql.engine.statements import insert_of
from angzarr.adapters.sql.ledger.column_types import stored_name
from angzarr.adapters.sql.ledger.fact_outbox import put_facts
from angzarr.adapters.sql.ledger.tables import (
    entry_from,
    group_from,
    ledger_counts,
    ledger_entries,
    ledger_group_history,
    ledger_groups,
    line_row,
)
from angzarr.analysis.ledger.act_facts import fact_of_group
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
from angzarr.analysis.ledger.entry import OPEN, Entry, HistoryLine
from angzarr.analysis.ledger.group import Group, GroupStatus
from angzarr.analysis.ledger.upkeep import Recounted
from angzarr.errors import LedgerUnavailable
from angzarr.facts.act import act_origin

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
    """The primary key of *kind*'s row, whose names are as they are stored."""
    return hashlib.sha256("\x00".join(kind).encode()).hexdigest()


def append_line(connection: Connection, group: Group, line: HistoryLine) -> None:
    """Add to the history of *group*, which *line* made what it is, and to the facts."""
    row = line_row(line) | {"fingerprint": group.fingerprint}
    connection.execute(insert(ledger_group_history).values(row))
    put_facts(connection, [fact_of_group(group, line, act_origin())])


def _is_storable(kind: CountKey) -> bool:
    return all(stored_name(name) == name for name in kind)


def _as_stored(entry: Entry) -> Entry:
    """*entry* with the names that are counted by as they are stored."""
    names = {name: stored_name(getattr(entry, name)) for name in _NAMES}
    same = all(getattr(entry, name) == stored for name, stored in names.items())
    return entry if same else replace(entry, **names)  # type: ignore[arg-type]


def grow(connection: Connection, grown: Mapping[str, Growth], now: datetime) -> None:
    """Write groups, in the order of their fingerprints; what was fixed and fails regresses."""
    if not grown:
        return
    rows = [_new_row(name, grown[name]) for name in sorted(grown)]
    written = connection.execute(_growing(connection.dialect.name), rows).all()
    fixed = {row.fingerprint for row in written if row.status == GroupStatus.FIXED}
    for name in sorted(fixed):
        if grown[name].fails:
            _regress(connection, name, now)


@cache
def _growing(dialect: str) -> Any:
    """The statement that adds a group, or adds to it."""
    statement = insert_of(dialect, ledger_groups)
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
        append_line(connection, group, line)


def write_counts(connection: Connection, counted: Mapping[CountKey, Amounts]) -> None:
    """Add *counted* to the counts, in the order of their keys."""
    rows = [
        {"key": key_of(kind), **kind._asdict(), **amounts._asdict()}
        for kind, amounts in counted.items()
    ]
    rows.sort(key=itemgetter("key"))
    if rows:
        connection.execute(_counting(connection.dialect.name), rows)


@cache
def _counting(dialect: str) -> Any:
    """The statement that adds a kind's counts, or adds to them."""
    statement = insert_of(dialect, ledger_counts)
    new = {name: ledger_counts.c[name] + statement.excluded[name] for name in _AMOUNTS}
    return statement.on_conflict_do_update(index_elements=[ledger_counts.c.key], set_=new)


#: Groups compared in one transaction.
_STEP: Final = 200


def recount(engine: Engine, *, fix: bool = True) -> Iterator[Recounted]:
    """Compare all groups with their entries, step by step; fix them if asked to."""
    last: str | None = None
    while True:
        compare = partial(_compare, after=last)
        names, wrong = in_transaction(_snapshot(engine), compare, away=LedgerUnavailable)
        if not names:
            return
        for name in wrong if fix else ():
            in_transaction(engine, partial(_fix, name=name), away=LedgerUnavailable)
        yield Recounted(groups=len(names), wrong=tuple(wrong))
        last = names[-1]


def _snapshot(engine: Engine) -> Engine:
    """*engine* for transactions that see one moment; on SQLite all do."""
    if engine.dialect.name == "sqlite":
        return reading(engine)
    return engine.execution_options(isolation_level="REPEATABLE READ")


def _compare(connection: Connection, after: str | None) -> tuple[Sequence[str], list[str]]:
    """Names of the next groups, and which of those are not counted as they are."""
    names = _names(connection, after)
    there, kept = _counted(connection, names), _kept(connection, names)
    groups = _groups(connection, names)
    wrong = [
        name
        for name in names
        if there.get(name, {}) != kept.get(name, {})
        or groups.get(name, (0, 0, 0)) != _totals(there.get(name, {}))
    ]
    return names, wrong


def _names(connection: Connection, after: str | None) -> Sequence[str]:
    each = []
    for table in (ledger_entries, ledger_groups, ledger_counts):
        name = table.c.fingerprint
        some = select(name).distinct().order_by(name).limit(_STEP)
        some = some.where(name > after) if after is not None else some
        each.append(select(some.subquery().c.fingerprint))
    found = union(*each).subquery().c.fingerprint
    return connection.scalars(select(found).order_by(found).limit(_STEP)).all()


def _counted(connection: Connection, names: Sequence[str]) -> dict[str, dict[CountKey, Amounts]]:
    """The amounts of each kind, by reading the entries."""
    entries = ledger_entries.c
    kind = [entries[name] for name in CountKey._fields]
    sums = (func.count(), func.sum(entries.occurrences), func.sum(entries.replays))
    wanted = select(*kind, *sums).where(entries.fingerprint.in_(names)).group_by(*kind)
    return _by_name(connection.execute(wanted))


def _kept(connection: Connection, names: Sequence[str]) -> dict[str, dict[CountKey, Amounts]]:
    counts = ledger_counts.c
    columns = [counts[name] for name in (*CountKey._fields, *_AMOUNTS)]
    return _by_name(connection.execute(select(*columns).where(counts.fingerprint.in_(names))))


def _by_name(rows: Any) -> dict[str, dict[CountKey, Amounts]]:
    found: dict[str, dict[CountKey, Amounts]] = {}
    for row in rows:
        kind = CountKey(*(value or "" for value in row[:6]))
        amounts = Amounts(*map(int, row[6:]))
        if any(amounts):
            found.setdefault(kind.fingerprint, {})[kind] = amounts
    return found


def _groups(connection: Connection, names: Sequence[str]) -> dict[str, tuple[int, int, int]]:
    groups = ledger_groups.c
    columns = (groups.fingerprint, groups.entries, groups.open_entries, groups.occurrences)
    rows = connection.execute(select(*columns).where(groups.fingerprint.in_(names)))
    return {row[0]: (row[1], row[2], row[3]) for row in rows}


def _totals(kinds: dict[CountKey, Amounts]) -> tuple[int, int, int]:
    """Entries, open ones and letters of a group."""
    still = sum(amounts.entries for kind, amounts in kinds.items() if kind.status in OPEN)
    every = sum(amounts.entries for amounts in kinds.values())
    return every, still, sum(amounts.occurrences for amounts in kinds.values())


def _lock(connection: Connection, name: str) -> bool:
    """Lock the row of a group, made where it has entries; tell whether there is one."""
    by_name = ledger_entries.c.fingerprint == name
    latest = select(ledger_entries).where(by_name)
    latest = latest.order_by(ledger_entries.c.last_failed_at.desc()).limit(1)
    found = connection.execute(latest).one_or_none()
    if found is None:
        mine = select(ledger_groups).where(ledger_groups.c.fingerprint == name)
        return connection.execute(mine.with_for_update()).one_or_none() is not None
    first = connection.scalar(select(func.min(ledger_entries.c.first_failed_at)).where(by_name))
    growth = Growth(latest=entry_from(found), first_failed_at=first or found.first_failed_at)
    grow(connection, {name: growth}, found.last_failed_at)
    return True


def _fix(connection: Connection, name: str) -> None:
    """Count one group anew, with its row locked."""
    if not _lock(connection, name):
        _remove_counts(connection, name)
        return
    there = _counted(connection, [name]).get(name, {})
    totals = dict(zip(("entries", "open_entries", "occurrences"), _totals(there), strict=True))
    by_name = ledger_groups.c.fingerprint == name
    connection.execute(update(ledger_groups).where(by_name).values(totals))
    connection.execute(delete(ledger_counts).where(ledger_counts.c.fingerprint == name))
    write_counts(connection, there)


def _remove_counts(connection: Connection, name: str) -> None:
    """Remove the counts of a group that is not there, unless its first letter comes meanwhile.

    They are locked first: who files that letter adds to them or waits.
    """
    counts = ledger_counts.c
    mine = select(counts.key).where(counts.fingerprint == name).with_for_update()
    stale = connection.scalars(mine).all()
    if not _counted(connection, [name]):
        connection.execute(delete(ledger_counts).where(counts.key.in_(stale)))
