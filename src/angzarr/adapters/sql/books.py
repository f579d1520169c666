"""Event books in SQL: one transaction a verb, and one writer a book at a time.

On PostgreSQL a writer holds the row of its book, on SQLite the whole database (BEGIN IMMEDIATE).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Engine, RowMapping, Select, Table, delete, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from angzarr.adapters.sql.book_rows import (
    decision_of,
    decision_row,
    event_of,
    event_row,
    key_of,
    snapshot_of,
    snapshot_row,
)
from angzarr.adapters.sql.book_tables import (
    book_decisions,
    book_events,
    book_snapshots,
    create_book_tables,
    event_books,
)
from angzarr.adapters.sql.engine import in_transaction, reading
from angzarr.aggregates.book import (
    Address,
    Answer,
    Book,
    Decision,
    EventBooks,
    Kept,
    Reading,
    Retention,
    Snapshot,
    Stale,
    Write,
    numbered,
)
from angzarr.clock import Clock, SystemClock
from angzarr.events.event import Event


class SqlEventBooks(EventBooks):
    """Books in the tables ``event_books``, ``book_events``, ``book_decisions``, ``book_snapshots``.

    They are made before the first use. *close* lets the engine go.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        close: Callable[[], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._engine = engine
        # Both reads are of one moment: a decision is never seen without the events before it.
        self._reading = reading(engine).execution_options(**_one_moment(engine))
        self._close = close or engine.dispose
        self._clock = clock or SystemClock()
        self._insert = (postgresql if engine.dialect.name == "postgresql" else sqlite).insert
        self._ready = False

    def read(
        self, address: Address, /, *, cause: str | None = None, whole: bool = False
    ) -> Reading:
        """Return the book and what was decided of *cause*."""

        def step(connection: Connection) -> Reading:
            snapshot = None if whole else _newest(connection, address)
            first = 0 if snapshot is None else snapshot.sequence
            events = _events(connection, address, first)
            book = Book(
                address=address,
                events=events,
                snapshot=snapshot,
                next_sequence=_next_sequence(connection, address),
            )
            decision = None if cause is None else _decided(connection, address, cause)
            return Reading(book, decision)

        self._prepare()
        return in_transaction(self._reading, step)

    def write(self, write: Write, /) -> Answer:
        """Keep a decision and append its events."""

        def step(connection: Connection) -> Answer:
            first = self._hold(connection, write.address)
            if decided := _decided(connection, write.address, write.decision.cause):
                return Kept(decided, anew=False)
            if write.expected is not None and write.expected != first:
                return Stale(first)
            return Kept(self._append(connection, write, first), anew=True)

        self._prepare()
        return in_transaction(self._engine, step)

    def close(self) -> None:
        """Let the connections go."""
        self._close()

    def _hold(self, connection: Connection, address: Address) -> int:
        """Keep other writers of the book out until this transaction ends; return where it is."""
        here = self._insert(event_books).values(**key_of(address), next_sequence=0)
        keys = [event_books.c.domain, event_books.c.root, event_books.c.edition]
        held = here.on_conflict_do_update(
            index_elements=keys, set_={"next_sequence": event_books.c.next_sequence}
        ).returning(event_books.c.next_sequence)
        return int(connection.execute(held).scalar_one())

    def _append(self, connection: Connection, write: Write, first: int) -> Decision:
        events = numbered(write.decision.events, write.address, first)
        row = decision_row(write.decision, write.address, first, self._clock.now())
        connection.execute(insert(book_decisions), row)
        if events:
            connection.execute(insert(book_events), [event_row(event) for event in events])
            onwards = update(event_books).where(*_at(event_books, write.address))
            connection.execute(onwards.values(next_sequence=first + len(events)))
        if write.snapshot is not None:
            _replace(connection, write.snapshot, write.address)
        return replace(write.decision, events=events)

    def _prepare(self) -> None:
        if not self._ready:
            create_book_tables(self._engine)
            self._ready = True


def _one_moment(engine: Engine) -> dict[str, Any]:
    if engine.dialect.name != "postgresql":
        return {}  # a transaction of SQLite in WAL mode sees one moment by itself
    return {"isolation_level": "REPEATABLE READ"}


def _at(table: Table, address: Address) -> list[Any]:
    return [table.c[name] == value for name, value in key_of(address).items()]


def _all_at(table: Table, address: Address) -> Select[Any]:
    return select(table).where(*_at(table, address))


def _newest(connection: Connection, address: Address) -> Snapshot | None:
    newest = _all_at(book_snapshots, address).order_by(book_snapshots.c.sequence.desc()).limit(1)
    row = connection.execute(newest).mappings().first()
    return None if row is None else snapshot_of(row)


def _next_sequence(connection: Connection, address: Address) -> int:
    wanted = select(event_books.c.next_sequence).where(*_at(event_books, address))
    return int(connection.execute(wanted).scalar() or 0)


def _events(
    connection: Connection, address: Address, first: int, count: int | None = None
) -> tuple[Event, ...]:
    place = book_events.c.sequence
    wanted = _all_at(book_events, address).where(place >= first).order_by(place)
    if count is not None:
        wanted = wanted.where(place < first + count)
    return tuple(event_of(row) for row in connection.execute(wanted).mappings())


def _decided(connection: Connection, address: Address, cause: str) -> Decision | None:
    wanted = _all_at(book_decisions, address).where(book_decisions.c.cause == cause)
    row: RowMapping | None = connection.execute(wanted).mappings().first()
    if row is None:
        return None
    count = row["event_count"]
    events = _events(connection, address, row["first_sequence"], count) if count else ()
    return decision_of(row, events)


def _replace(connection: Connection, snapshot: Snapshot, address: Address) -> None:
    older = delete(book_snapshots).where(
        *_at(book_snapshots, address), book_snapshots.c.retention != Retention.PERSIST.value
    )
    connection.execute(older)
    connection.execute(insert(book_snapshots), snapshot_row(snapshot, address))
