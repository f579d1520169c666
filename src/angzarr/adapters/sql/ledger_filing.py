"""Filing: letters into the ledger's tables, each once, one entry for each (handler, event)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from angzarr.adapters.sql.ledger_counting import count
from angzarr.adapters.sql.ledger_rows import entry_from, entry_row, letter_row, line_row
from angzarr.adapters.sql.ledger_tables import ledger_entries, ledger_history, ledger_letters
from angzarr.analysis import transition
from angzarr.analysis.entry import (
    Entry,
    Failure,
    HistoryLine,
    entry_id_of,
    replay_of,
    replayed_letter_of,
)
from angzarr.analysis.tally import Step
from angzarr.analysis.transition import Change


def file_failures(
    connection: Connection, failures: Sequence[Failure], now: datetime
) -> list[Entry]:
    """File *failures* in order and return the entry of each.

    Raises IntegrityError when another transaction filed one of them meanwhile: try again.
    """
    filing = Filing(letters=_known_letters(connection, failures))
    filing.entries = lock_entries(connection, filing.ids_for(failures))
    filed = [filing.add(failure, now) for failure in failures]
    filing.write(connection)
    count(connection, filing.steps, now)
    return filed


def lock_entries(connection: Connection, ids: Iterable[str]) -> dict[str, Entry]:
    """Return the entries among *ids*, locked until the transaction ends, always in one order."""
    wanted = select(ledger_entries).where(ledger_entries.c.id.in_(sorted(set(ids))))
    rows = connection.execute(wanted.order_by(ledger_entries.c.id).with_for_update())
    return {row.id: entry_from(row) for row in rows}


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
    steps = [Step(before, change.entry) for before, change in changes]
    save_entries(connection, _ends(steps))
    append_lines(connection, [(change.entry.id, change.line) for _, change in changes])
    count(connection, steps, now)


def _ends(steps: Iterable[Step]) -> list[tuple[Entry, Entry]]:
    """Return each entry that was there before *steps*, as it was and as they leave it."""
    ends: dict[str, tuple[Entry | None, Entry]] = {}
    for before, after in steps:
        if after is not None:
            first, _ = ends.get(after.id, (before, after))
            ends[after.id] = (first, after)
    return [(before, after) for before, after in ends.values() if before is not None]


def append_lines(connection: Connection, lines: Sequence[tuple[str, HistoryLine | None]]) -> None:
    """Add to the history of the entries named first; None adds nothing."""
    rows = [line_row(entry_id, line) for entry_id, line in lines if line]
    if rows:
        connection.execute(insert(ledger_history), rows)


@dataclass(slots=True, kw_only=True)
class Filing:
    """What one transaction knows of its letters' entries, and what it is going to write."""

    #: (letter id, replay, entry id) of letters filed before.
    letters: set[tuple[str, int, str]]
    entries: dict[str, Entry] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    _new: set[str] = field(default_factory=set)
    _failures: dict[str, Failure] = field(default_factory=dict)
    _lines: list[tuple[str, HistoryLine | None]] = field(default_factory=list)

    def ids_for(self, failures: Sequence[Failure]) -> set[str]:
        """Return the ids of all entries that *failures* may belong to."""
        owners = (entry_id for _, _, entry_id in self.letters)
        return {*owners, *(entry_id_of(failure) for failure in failures)}

    def add(self, failure: Failure, now: datetime) -> Entry:
        """Plan the filing of *failure*; return its entry as it will be."""
        known, replay = self._entry_of(failure), replay_of(failure)
        if known is None:
            change = transition.filed(failure, now)
            self._new.add(change.entry.id)
        elif (failure.id, replay, known.id) in self.letters:
            return known
        else:
            change = transition.failed_again(known, failure, now)
        self.letters.add((failure.id, replay, change.entry.id))
        self.steps.append(Step(known, change.entry))
        self._take(change, failure)
        return change.entry

    def write(self, connection: Connection) -> None:
        """Write what was planned."""
        new = [entry_row(self.entries[entry_id]) for entry_id in sorted(self._new)]
        if new:
            connection.execute(insert(ledger_entries), new)
        save_entries(connection, _ends(self.steps))
        append_lines(connection, self._lines)
        self._write_letters(connection)

    def _entry_of(self, failure: Failure) -> Entry | None:
        linked = replayed_letter_of(failure)
        for letter_id, _, entry_id in self.letters:
            if letter_id == linked and transition.continues(self.entries[entry_id], failure):
                return self.entries[entry_id]
        return self.entries.get(entry_id_of(failure))

    def _take(self, change: Change, failure: Failure) -> None:
        self.entries[change.entry.id] = change.entry
        self._lines.append((change.entry.id, change.line))
        if transition.holds(change.entry, failure):
            self._failures[change.entry.id] = failure

    def _write_letters(self, connection: Connection) -> None:
        if replaced := sorted(self._failures.keys() - self._new):
            old = ledger_letters.c.entry_id.in_(replaced)
            connection.execute(delete(ledger_letters).where(old))
        if self._failures:
            rows = [letter_row(*one) for one in self._failures.items()]
            connection.execute(insert(ledger_letters), rows)


def _known_letters(
    connection: Connection, failures: Sequence[Failure]
) -> set[tuple[str, int, str]]:
    """Return which of these letters, and of those whose replay failed, were filed before."""
    history = ledger_history.c
    ids = {failure.id for failure in failures}
    ids |= {linked for failure in failures if (linked := replayed_letter_of(failure))}
    wanted = select(history.letter_id, history.replay, history.entry_id)
    rows = connection.execute(wanted.where(history.letter_id.in_(sorted(ids))))
    return {(row.letter_id, row.replay, row.entry_id) for row in rows}
