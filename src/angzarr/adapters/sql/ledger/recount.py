"""Recounting: compares groups and counts with the entries, and mends them where they differ.

Comparing locks nothing: it sees all tables at one moment. Mending locks the group, for which every
transaction waits that changes one of its entries; so what it counts is what is there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

from sqlalchemy import Connection, Engine, delete, func, select, union, update

from angzarr.adapters.sql.engine.engine import in_transaction, reading
from angzarr.adapters.sql.ledger.counting import grow, write_counts
from angzarr.adapters.sql.ledger.rows import entry_from
from angzarr.adapters.sql.ledger.tables import ledger_counts, ledger_entries, ledger_groups
from angzarr.analysis.ledger.counts import Amounts, CountKey, Growth
from angzarr.analysis.ledger.entry import OPEN
from angzarr.analysis.ledger.upkeep import Recounted
from angzarr.errors import LedgerUnavailable

#: Groups compared in one transaction.
_STEP: Final = 200
_AMOUNTS: Final = Amounts._fields


def recount(engine: Engine, *, mend: bool = True) -> Iterator[Recounted]:
    """Go through all groups and tell of each step what was found; mend it unless told not to."""
    last: str | None = None
    while True:
        compare = partial(_compare, after=last)
        names, wrong = in_transaction(_snapshot(engine), compare, away=LedgerUnavailable)
        if not names:
            return
        for name in wrong if mend else ():
            in_transaction(engine, partial(_mend, name=name), away=LedgerUnavailable)
        yield Recounted(groups=len(names), wrong=tuple(wrong))
        last = names[-1]


def _snapshot(engine: Engine) -> Engine:
    """Return *engine* for transactions that see one moment; on SQLite all do."""
    if engine.dialect.name == "sqlite":
        return reading(engine)
    return engine.execution_options(isolation_level="REPEATABLE READ")


def _compare(connection: Connection, after: str | None) -> tuple[Sequence[str], list[str]]:
    """Return names of the next groups, and which of those are not counted as they are."""
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
    """Return what there is of each kind, by reading the entries."""
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
    """Return entries, open ones and letters of a group."""
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


def _mend(connection: Connection, name: str) -> None:
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

    They are locked first: whoever files that letter adds to them or waits.
    """
    counts = ledger_counts.c
    mine = select(counts.key).where(counts.fingerprint == name).with_for_update()
    stale = connection.scalars(mine).all()
    if not _counted(connection, [name]):
        connection.execute(delete(ledger_counts).where(counts.key.in_(stale)))
