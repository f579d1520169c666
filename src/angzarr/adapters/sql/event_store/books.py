"""Event books in SQL: one transaction a verb, and one writer a book at a time.

On PostgreSQL a writer holds the row of its book, on SQLite the whole database (BEGIN IMMEDIATE).
`SqlEventStore` reads all books as one: pages by primary key, however many books there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from operator import ge, gt
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    RowMapping,
    Select,
    Table,
    and_,
    delete,
    func,
    insert,
    select,
    tuple_,
    update,
)

from angzarr.adapters.sql.engine.schema import SchemaDatabase
from angzarr.adapters.sql.engine.statements import as_table, insert_into, utc
from angzarr.adapters.sql.event_store.tables import (
    BOOKS,
    address_in,
    book_decisions,
    book_events,
    book_snapshots,
    cause_key,
    decision_of,
    decision_row,
    event_books,
    event_of,
    event_row,
    key_of,
    prune_decisions,
    snapshot_of,
    snapshot_row,
)
from angzarr.aggregates.book import (
    Address,
    Answer,
    Book,
    Decision,
    EventBooks,
    EventStore,
    Head,
    Kept,
    Pending,
    Reading,
    Retention,
    Snapshot,
    Stale,
    Unsent,
    Write,
    numbered,
)
from angzarr.clock import Clock, SystemClock
from angzarr.events.event import Event


class SqlEventBooks(EventBooks):
    """Books in the tables ``event_books``, ``book_events``, ``book_decisions``, ``book_snapshots``.

    They are made or, unless *migrate* is False, upgraded before the first use. *close* lets the
    engine go.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        close: Callable[[], None] | None = None,
        clock: Clock | None = None,
        migrate: bool = True,
    ) -> None:
        self._database = SchemaDatabase(
            BOOKS, engine, migrate=migrate, close=close, reads=_one_moment(engine)
        )
        self._clock = clock or SystemClock()

    def read(
        self, address: Address, /, *, cause: str | None = None, whole: bool = False
    ) -> Reading:
        """The book and what was decided of *cause*."""

        def step(connection: Connection) -> Reading:
            row = connection.execute(_head(address, cause)).mappings().first()
            if row is None:
                return Reading(Book(address=address))
            has_snapshot = row["state"] is not None and not whole
            snapshot = snapshot_of(row) if has_snapshot else None
            first, following = (snapshot.sequence if snapshot else 0), row["next_sequence"]
            book = Book(
                address=address,
                events=_events(connection, address, first) if first < following else (),
                snapshot=snapshot,
                next_sequence=following,
            )
            return Reading(book, _decision(connection, address, row))

        return self._database.read(step)

    def write(self, write: Write, /) -> Answer:
        """Keep a decision and append its events."""

        def step(connection: Connection) -> Answer:
            first = self._hold(connection, write.address)
            stale = write.expected is not None and write.expected != first
            if stale or not self._keep(connection, write, first):
                row = (
                    connection.execute(_head(write.address, write.decision.cause)).mappings().one()
                )
                decided = _decision(connection, write.address, row)
                return Stale(first) if decided is None else Kept(decided, anew=False)
            return Kept(_append(connection, write, first), anew=True)

        return self._database.write(step)

    def unsent(self, before: datetime, limit: int, /) -> Sequence[Unsent]:
        """Decisions whose events count as unsent."""
        since = book_decisions.c.unsent_since
        overdue = select(book_decisions).where(since < before).order_by(since).limit(limit)

        def step(connection: Connection) -> list[Unsent]:
            rows = connection.execute(overdue).mappings().all()
            return [Unsent(place := address_in(row), _told(connection, place, row)) for row in rows]

        return self._database.read(step)

    def sent(self, address: Address, cause: str, /) -> None:
        """Note that what was decided of *cause* is sent."""
        done = update(book_decisions).where(
            *_at(book_decisions, address), book_decisions.c.cause == cause_key(cause)
        )
        self._database.write(lambda c: c.execute(done.values(unsent_since=None)))

    def prune(self, before: datetime, /, *, limit: int) -> int:
        """Forget decisions of before *before* whose events are sent."""
        return self._database.write(lambda c: prune_decisions(c, before, limit))

    def close(self) -> None:
        """Let the connections go."""
        self._database.close()

    def _hold(self, connection: Connection, address: Address) -> int:
        """Keep other writers of the book out until this transaction ends; return where it is."""
        here = insert_into(connection, event_books).values(**key_of(address), next_sequence=0)
        keys = [event_books.c.domain, event_books.c.root, event_books.c.edition]
        held = here.on_conflict_do_update(
            index_elements=keys, set_={"next_sequence": event_books.c.next_sequence}
        ).returning(event_books.c.next_sequence)
        return int(connection.execute(held).scalar_one())

    def _keep(self, connection: Connection, write: Write, first: int) -> bool:
        """Keep the decision, unless there is one of the same cause; tell which."""
        now = self._clock.now()
        row = decision_row(write.decision, write.address, first, now)
        row["unsent_since"] = now if write.unsent and write.decision.events else None
        fresh = insert_into(connection, book_decisions).values(**row).on_conflict_do_nothing()
        kept = fresh.returning(book_decisions.c.first_sequence)
        return connection.execute(kept).first() is not None


def _one_moment(engine: Engine) -> dict[str, Any]:
    """Options by which all reads of a transaction are of one moment.

    A decision is never seen without the events before it.
    """
    if engine.dialect.name != "postgresql":
        return {}  # a transaction of SQLite in WAL mode sees one moment by itself
    return {"isolation_level": "REPEATABLE READ"}


def _at(table: Table, address: Address) -> list[Any]:
    return [table.c[name] == value for name, value in key_of(address).items()]


def _all_at(table: Table, address: Address) -> Select[Any]:
    return select(table).where(*_at(table, address))


def _head(address: Address, cause: str | None) -> Select[Any]:
    """The question where a book is, with its newest snapshot and a cause's decision."""
    books, decisions, snapshots = event_books, book_decisions, book_snapshots
    newest = select(func.max(snapshots.c.sequence)).where(*_at(snapshots, address))
    joined = books.outerjoin(
        snapshots, and_(*_at(snapshots, address), snapshots.c.sequence == newest.scalar_subquery())
    )
    columns = [books.c.next_sequence, *_own(snapshots)]
    if cause is not None:
        of_cause = and_(*_at(decisions, address), decisions.c.cause == cause_key(cause))
        joined = joined.outerjoin(decisions, of_cause)
        columns += _own(decisions)
    return select(*columns).select_from(joined).where(*_at(books, address))


def _own(table: Table) -> list[Any]:
    """The columns of *table* besides the address."""
    return [column for column in table.c if column.name not in Address._fields]


def _decision(connection: Connection, address: Address, row: RowMapping) -> Decision | None:
    """The decision in *row*, if there is one, with the events that it appended."""
    return None if row.get("cause") is None else _told(connection, address, row)


def _told(connection: Connection, address: Address, row: RowMapping) -> Decision:
    count = row["event_count"]
    events = _events(connection, address, row["first_sequence"], count) if count else ()
    return decision_of(row, events)


def _append(connection: Connection, write: Write, first: int) -> Decision:
    """Append the events of a decision that is kept."""
    events = numbered(write.decision.events, write.address, first)
    if events:
        connection.execute(insert(book_events), [event_row(event) for event in events])
        onwards = update(event_books).where(*_at(event_books, write.address))
        connection.execute(onwards.values(next_sequence=first + len(events)))
    if write.snapshot is not None:
        _replace(connection, write.snapshot, write.address)
    return replace(write.decision, events=events)


def _events(
    connection: Connection, address: Address, first: int, count: int | None = None
) -> tuple[Event, ...]:
    place = book_events.c.sequence
    wanted = _all_at(book_events, address).where(place >= first).order_by(place)
    if count is not None:
        wanted = wanted.where(place < first + count)
    return tuple(event_of(row) for row in connection.execute(wanted).mappings())


def _replace(connection: Connection, snapshot: Snapshot, address: Address) -> None:
    older = delete(book_snapshots).where(
        *_at(book_snapshots, address), book_snapshots.c.retention != Retention.PERSIST.value
    )
    connection.execute(older)
    connection.execute(insert(book_snapshots), snapshot_row(snapshot, address))


class SqlEventStore(EventStore):
    """Reads the tables of `SqlEventBooks` and waits for no writer; *close* lets the engine go.

    Roots and editions are in the order that the database gives to texts.
    """

    def __init__(
        self, engine: Engine, *, close: Callable[[], None] | None = None, migrate: bool = True
    ) -> None:
        self._database = SchemaDatabase(BOOKS, engine, migrate=migrate, close=close)

    def heads(self, domains: Sequence[str], after: Address | None, limit: int, /) -> Sequence[Head]:
        """The next sequences of the books of *domains*, those behind *after*."""
        rows = self._page(list(_parts(event_books, domains, after, gt)), limit)
        return [Head(address_in(row), row["next_sequence"]) for row in rows]

    def scan(self, domains: Sequence[str], start: Head | None, limit: int, /) -> Sequence[Event]:
        """Events of *domains*, from the one at *start* on."""
        place = None if start is None else (*start.address, start.next_sequence)
        rows = self._page(list(_parts(book_events, domains, place, ge)), limit)
        return [event_of(row) for row in rows]

    def pending(self, places: Sequence[Head], /) -> Sequence[Pending]:
        """Count the events from each of *places* to the end of its book, by type."""
        if not places:
            return []
        counts = _counts(self._database.engine, places)
        rows = self._database.read(lambda connection: connection.execute(counts).all())
        return sorted(
            Pending(kind, events, oldest and utc(oldest)) for kind, events, oldest in rows
        )

    def close(self) -> None:
        """Let the connections go."""
        self._database.close()

    def _page(self, parts: Sequence[Select[Any]], limit: int) -> Sequence[RowMapping]:
        """The first rows of *parts*, one behind the other: seldom more than one is asked."""

        def step(connection: Connection) -> list[RowMapping]:
            rows: list[RowMapping] = []
            for part in parts:
                if len(rows) < limit:
                    rows += connection.execute(part.limit(limit - len(rows))).mappings()
            return rows

        return self._database.read(step)


def _parts(
    table: Table,
    domains: Sequence[str],
    place: Sequence[Any] | None,
    beyond: Callable[[Any, Any], ColumnElement[bool]],
) -> Iterator[Select[Any]]:
    """Yield a question for each domain that has rows *beyond* *place*, in order.

    One for several would let PostgreSQL begin each page where a domain begins.
    """
    domain, *key = table.primary_key.columns
    for name in sorted(set(domains)):
        if place is not None and name < place[0]:
            continue
        rows = select(table).where(domain == name).order_by(*key)
        if place is not None and name == place[0]:
            rows = rows.where(beyond(tuple_(*key), tuple_(*place[1:])))
        yield rows


def _counts(engine: Engine, places: Sequence[Head]) -> Select[Any]:
    events = book_events.c
    rows = [(*address, following) for address, following in places]
    asked = as_table(engine.dialect, "asked", list(book_events.primary_key.columns), rows)
    at = [events[name] == asked.c[name] for name in Address._fields]
    return (
        select(events.type, func.count(), func.min(events.occurred_at))
        .select_from(asked)
        .join(book_events, (events.sequence >= asked.c.sequence) & at[0] & at[1] & at[2])
        .group_by(events.type)
    )
