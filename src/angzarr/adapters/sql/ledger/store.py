"""The ledger in SQL: rows are locked, `transition` decides, rows are written.

A letter is filed once: one entry for each (handler, event).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import Connection, bindparam, delete, func, select, update
from sqlalchemy.exc import IntegrityError

from angzarr.adapters.sql.engine.statements import Lookup, among, insert_columns, insert_rows
from angzarr.adapters.sql.ledger.column_types import Name, stored_name
from angzarr.adapters.sql.ledger.counts import count
from angzarr.adapters.sql.ledger.database import LedgerDatabase, prune
from angzarr.adapters.sql.ledger.fact_outbox import put_facts
from angzarr.adapters.sql.ledger.job_rows import order_sizes, read_orders, save_orders
from angzarr.adapters.sql.ledger.letter_holds import (
    LetterHold,
    holds_of_letters,
    release,
    renew,
)
from angzarr.adapters.sql.ledger.queries import (
    count_all,
    lock_due,
    read_oldest_open,
    read_page,
    within_time,
)
from angzarr.adapters.sql.ledger.tables import (
    ENTRY,
    ENTRY_LINE,
    entry_columns,
    entry_from,
    entry_row,
    failure_from,
    ledger_entries,
    ledger_history,
    ledger_letters,
    letter_row,
    line_columns,
    line_from,
)
from angzarr.analysis.ledger import transition
from angzarr.analysis.ledger.act_facts import facts_of_changes
from angzarr.analysis.ledger.counts import CountStep
from angzarr.analysis.ledger.entry import Change, Entry, EntryDetail, HistoryLine, Status
from angzarr.analysis.ledger.failure import Failure
from angzarr.analysis.ledger.filing_plan import Decider, FilingPlan, letter_ids_of
from angzarr.analysis.ledger.ledger import (
    ANY,
    EntryFilter,
    EntryPage,
    EntryTransitions,
    FailureStats,
    Ledger,
    Make,
    read_cursor,
)
from angzarr.clock import Clock, SystemClock
from angzarr.dead_letters.holding_queue import payload_hold
from angzarr.dead_letters.letter import DeadLetter
from angzarr.facts.act import act_origin


def file_failures(
    connection: Connection,
    failures: Sequence[Failure],
    now: datetime,
    decide: Decider | None,
    by: str,
) -> list[Entry]:
    """File *failures* in order, as *decide* says, and return the entry of each.

    Raises IntegrityError when another transaction filed one of them meanwhile: try again.
    """
    filing = FilingPlan(now=now, letters=_known_letters(connection, failures))
    filing.know(lock_entries(connection, filing.ids_for(failures)))
    filed = filing.file(failures, decide, by)
    steps = filing.steps()
    _write(connection, filing, steps)
    count(connection, steps, now)
    return filed


_history: Final = ledger_history.c
_BY_ID: Final = select(ledger_entries).order_by(ledger_entries.c.id)
_LOCKING: Final = Lookup(_BY_ID.with_for_update(), ledger_entries.c.id)
_FILED: Final = Lookup(
    select(_history.letter_id, _history.replay, _history.entry_id), _history.letter_id
)


def lock_entries(connection: Connection, ids: Iterable[str]) -> dict[str, Entry]:
    """The entries among *ids*, locked until the transaction ends, always in one order."""
    return {row.id: entry_from(row) for row in _LOCKING.rows(connection, ids)}


def save_entries(connection: Connection, changed: Iterable[tuple[Entry, Entry]]) -> None:
    """Write what changed in entries, each as it was and as it is; they exist and are locked."""
    by_fields: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for before, after in changed:
        was, now = entry_row(before), entry_row(after)
        new = {f"new_{name}": now[name] for name in now if now[name] != was[name]}
        by_fields.setdefault(tuple(new), []).append({"of": after.id, **new})
    for fields, rows in by_fields.items():
        values: dict[str, Any] = {name.removeprefix("new_"): bindparam(name) for name in fields}
        by_id = update(ledger_entries).where(ledger_entries.c.id == bindparam("of"))
        connection.execute(by_id.values(values), rows)


def save_changes(
    connection: Connection, changes: Sequence[tuple[Entry, Change]], now: datetime
) -> None:
    """Write *changes* of entries, each with what it was before; they exist and are locked."""
    steps = [CountStep(before, change.entry) for before, change in changes]
    save_entries(connection, _ends(steps))
    append_lines(connection, [(change.entry.id, change.line) for _, change in changes])
    put_facts(connection, facts_of_changes((change for _, change in changes), act_origin()))
    count(connection, steps, now)


def _ends(steps: Iterable[CountStep]) -> list[tuple[Entry, Entry]]:
    """Each entry that was there before *steps*, as it was and as they leave it."""
    ends: dict[str, tuple[Entry | None, Entry]] = {}
    for before, after, _ in steps:
        if after is not None:
            first, _ = ends.get(after.id, (before, after))
            ends[after.id] = (first, after)
    return [(before, after) for before, after in ends.values() if before is not None]


def append_lines(connection: Connection, lines: Sequence[tuple[str, HistoryLine | None]]) -> None:
    """Add to the history of the entries named first; None adds nothing."""
    origin = act_origin().value
    told = [(entry_id, replace(line, origin=origin)) for entry_id, line in lines if line]
    if told:
        names = ("entry_id", *ENTRY_LINE)
        insert_columns(connection, ledger_history, names, line_columns(told))


def _write(connection: Connection, filing: FilingPlan, steps: Sequence[CountStep]) -> None:
    new = [after for before, after, _ in steps if after and before is None]
    insert_columns(connection, ledger_entries, ENTRY, entry_columns(new))
    save_entries(connection, [(before, after) for before, after, _ in steps if before and after])
    append_lines(connection, filing.lines)
    put_facts(connection, facts_of_changes(filing.acts, act_origin()))
    gone = [
        LetterHold(entry_id, hold)
        for entry_id, failure in filing.passed_over
        if isinstance(failure, DeadLetter) and (hold := payload_hold(failure))
    ]
    if replaced := filing.replaced():
        gone += holds_of_letters(connection, replaced)
        old = ledger_letters.c.entry_id.in_(replaced)
        connection.execute(delete(ledger_letters).where(old))
    rows = [letter_row(*one) for one in filing.kept.items()]
    renew(connection, rows)
    insert_rows(connection, ledger_letters, rows)
    release(connection, gone)


def _known_letters(
    connection: Connection, failures: Sequence[Failure]
) -> dict[str, set[tuple[int, str]]]:
    """The places where these letters, and those whose replay failed, were filed before."""
    asked: dict[str, list[str]] = {}
    ids = list(letter_ids_of(failures))
    for stored, letter_id in zip(Name().write_all(ids), ids, strict=True):
        asked.setdefault(stored or "", []).append(letter_id)
    found: dict[str, set[tuple[int, str]]] = {}
    for row in _FILED.rows(connection, asked):
        for letter_id in asked[row.letter_id]:
            found.setdefault(letter_id, set()).add((row.replay, row.entry_id))
    return found


#: How often letters are filed anew that other workers file at the same time: each of them may be
#: faster once.
_TRIES: Final = 10


class SqlLedger(EntryTransitions, Ledger):
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

        def take(connection: Connection) -> list[Entry]:
            found = lock_due(connection, now, limit, besides)
            taken = [transition.leased(entry, now + lease) for entry in found]
            save_entries(connection, zip(found, taken, strict=True))
            return taken

        return self._database.write(take)

    def find_by_letters(self, letter_ids: Collection[str]) -> Mapping[str, Entry]:
        """The entries in which letters were filed."""
        letter_id = ledger_history.c.letter_id
        wanted = select(letter_id.label("of_letter"), ledger_entries).join_from(
            ledger_history, ledger_entries, ledger_history.c.entry_id == ledger_entries.c.id
        )

        def find(connection: Connection) -> dict[str, Entry]:
            asked_for = among(connection, letter_id, map(stored_name, letter_ids))
            rows = connection.execute(wanted.where(asked_for))
            found = {row.of_letter: entry_from(row) for row in rows}
            asked = ((one, found.get(stored_name(one))) for one in letter_ids)
            return {one: entry for one, entry in asked if entry}

        return self._database.read(find) if letter_ids else {}

    def open_all(self, entry_ids: Collection[str]) -> Mapping[str, EntryDetail]:
        """Entries with letter and history."""
        if not entry_ids:
            return {}
        return self._database.read(lambda connection: _open(connection, sorted(entry_ids)))

    def letter_sizes(self, entry_ids: Collection[str]) -> Mapping[str, int]:
        """The sizes of letters."""
        if not entry_ids:
            return {}
        return self._database.read(lambda connection: _sizes(connection, sorted(entry_ids)))

    def get_failed_events(
        self,
        wanted: EntryFilter = ANY,
        *,
        status: Status | None = Status.FAILED,
        limit: int = 100,
        after: str = "",
    ) -> EntryPage:
        """A page of entries."""
        behind = read_cursor(after) if after else None
        with within_time():
            return self._database.read(
                lambda connection: read_page(connection, wanted, status, limit, behind)
            )

    def oldest_open(self, *, limit: int = 1, unmuted: bool = False) -> list[Entry]:
        """The open entries that failed first longest ago."""
        at = self._clock.now() if unmuted else None
        return self._database.read(lambda connection: read_oldest_open(connection, limit, at))

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
        return self._database.write(lambda one: self._apply(one, changes), once=True)

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


def _sizes(connection: Connection, ids: Sequence[str]) -> dict[str, int]:
    letters = ledger_letters.c
    wanted = select(letters.entry_id, func.length(letters.body))
    found = connection.execute(wanted.where(among(connection, letters.entry_id, ids)))
    edits = order_sizes(connection, ids)
    return {entry_id: size + edits.get(entry_id, 0) for entry_id, size in found}


def _open(connection: Connection, ids: Sequence[str]) -> dict[str, EntryDetail]:
    by_id = among(connection, ledger_entries.c.id, ids)
    found = [entry_from(row) for row in connection.execute(select(ledger_entries).where(by_id))]
    letters = select(ledger_letters).where(among(connection, ledger_letters.c.entry_id, ids))
    failures = {row.entry_id: failure_from(row) for row in connection.execute(letters)}
    history = select(ledger_history).where(among(connection, ledger_history.c.entry_id, ids))
    lines: dict[str, list[HistoryLine]] = defaultdict(list)
    for row in connection.execute(history.order_by(ledger_history.c.number)):
        lines[row.entry_id].append(line_from(row))
    orders = read_orders(connection, {entry.id: entry.replays for entry in found})
    return {
        entry.id: EntryDetail(
            entry=entry,
            failure=failures[entry.id],
            history=tuple(lines[entry.id]),
            order=orders[entry.id][0],
            before=orders[entry.id][1],
        )
        for entry in found
        if entry.id in failures  # else it was removed between two of these questions
    }
