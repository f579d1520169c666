"""Filing: letters into the ledger's tables, each once, one entry for each (handler, event)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, delete, select, update

from angzarr.adapters.sql.engine.bulk import among, insert_rows
from angzarr.adapters.sql.ledger.counting import count
from angzarr.adapters.sql.ledger.rows import entry_from, entry_row, letter_row, line_row
from angzarr.adapters.sql.ledger.tables import (
    ledger_entries,
    ledger_history,
    ledger_letters,
    stored_name,
)
from angzarr.analysis.ledger.counts import CountStep
from angzarr.analysis.ledger.entry import Change, Entry, HistoryLine
from angzarr.analysis.ledger.failure import Failure
from angzarr.analysis.ledger.plan_filing import Decider, Filing, letter_ids_of


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
    filing = Filing(now=now, letters=_known_letters(connection, failures))
    filing.know(lock_entries(connection, filing.ids_for(failures)))
    filed = filing.file(failures, decide, by)
    steps = filing.steps()
    _write(connection, filing, steps)
    count(connection, steps, now)
    return filed


def lock_entries(connection: Connection, ids: Iterable[str]) -> dict[str, Entry]:
    """Return the entries among *ids*, locked until the transaction ends, always in one order."""
    wanted = select(ledger_entries).where(among(connection, ledger_entries.c.id, ids))
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
    steps = [CountStep(before, change.entry) for before, change in changes]
    save_entries(connection, _ends(steps))
    append_lines(connection, [(change.entry.id, change.line) for _, change in changes])
    count(connection, steps, now)


def _ends(steps: Iterable[CountStep]) -> list[tuple[Entry, Entry]]:
    """Return each entry that was there before *steps*, as it was and as they leave it."""
    ends: dict[str, tuple[Entry | None, Entry]] = {}
    for before, after, _ in steps:
        if after is not None:
            first, _ = ends.get(after.id, (before, after))
            ends[after.id] = (first, after)
    return [(before, after) for before, after in ends.values() if before is not None]


def append_lines(connection: Connection, lines: Sequence[tuple[str, HistoryLine | None]]) -> None:
    """Add to the history of the entries named first; None adds nothing."""
    rows = [line_row(entry_id, line) for entry_id, line in lines if line]
    insert_rows(connection, ledger_history, rows)


def _write(connection: Connection, filing: Filing, steps: Sequence[CountStep]) -> None:
    new = [entry_row(after) for before, after, _ in steps if after and before is None]
    insert_rows(connection, ledger_entries, new)
    save_entries(connection, [(before, after) for before, after, _ in steps if before and after])
    append_lines(connection, filing.lines)
    if replaced := filing.replaced():
        old = ledger_letters.c.entry_id.in_(replaced)
        connection.execute(delete(ledger_letters).where(old))
    insert_rows(connection, ledger_letters, [letter_row(*one) for one in filing.kept.items()])


def _known_letters(
    connection: Connection, failures: Sequence[Failure]
) -> dict[str, set[tuple[int, str]]]:
    """Return where these letters, and those whose replay failed, were filed before."""
    history = ledger_history.c
    wanted = select(history.letter_id, history.replay, history.entry_id)
    asked: dict[str, list[str]] = {}
    for letter_id in letter_ids_of(failures):
        asked.setdefault(stored_name(letter_id), []).append(letter_id)
    ids = among(connection, history.letter_id, asked)
    found: dict[str, set[tuple[int, str]]] = {}
    for row in connection.execute(wanted.where(ids)):
        for letter_id in asked[row.letter_id]:
            found.setdefault(letter_id, set()).add((row.replay, row.entry_id))
    return found
