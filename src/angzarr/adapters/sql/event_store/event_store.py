"""Event books in SQL read as one: pages by primary key, however many books there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import ge, gt
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    RowMapping,
    Select,
    Table,
    func,
    select,
    tuple_,
)

from angzarr.adapters.sql.delivery.facts import utc
from angzarr.adapters.sql.engine.engine import in_transaction, reading
from angzarr.adapters.sql.engine.schema import Readiness
from angzarr.adapters.sql.engine.statements import as_table
from angzarr.adapters.sql.event_store.tables import (
    BOOKS,
    address_in,
    book_events,
    event_books,
    event_of,
)
from angzarr.aggregates.book import Address, EventStore, Head, Pending
from angzarr.events.event import Event


class SqlEventStore(EventStore):
    """Reads the tables of `SqlEventBooks` and waits for no writer; *close* lets the engine go.

    Roots and editions are in the order that the database gives to texts.
    """

    def __init__(
        self, engine: Engine, *, close: Callable[[], None] | None = None, migrate: bool = True
    ) -> None:
        self._engine = engine
        self._reading = reading(engine)
        self._close = close or engine.dispose
        self._prepare = Readiness(BOOKS, engine, migrate=migrate)

    def heads(self, domains: Sequence[str], after: Address | None, limit: int, /) -> Sequence[Head]:
        """Return where the books of *domains* are, those behind *after*."""
        rows = self._page(list(_parts(event_books, domains, after, gt)), limit)
        return [Head(address_in(row), row["next_sequence"]) for row in rows]

    def scan(self, domains: Sequence[str], start: Head | None, limit: int, /) -> Sequence[Event]:
        """Return events of *domains*, from the one at *start* on."""
        place = None if start is None else (*start.address, start.next_sequence)
        rows = self._page(list(_parts(book_events, domains, place, ge)), limit)
        return [event_of(row) for row in rows]

    def pending(self, places: Sequence[Head], /) -> Sequence[Pending]:
        """Count the events from each of *places* to the end of its book, by type."""
        if not places:
            return []
        self._prepare()
        counts = _counts(self._engine, places)
        rows = in_transaction(self._reading, lambda connection: connection.execute(counts).all())
        return sorted(
            Pending(kind, events, oldest and utc(oldest)) for kind, events, oldest in rows
        )

    def close(self) -> None:
        """Let the connections go."""
        self._close()

    def _page(self, parts: Sequence[Select[Any]], limit: int) -> Sequence[RowMapping]:
        """Return the first rows of *parts*, one behind the other: seldom more than one is asked."""

        def step(connection: Connection) -> list[RowMapping]:
            rows: list[RowMapping] = []
            for part in parts:
                if len(rows) < limit:
                    rows += connection.execute(part.limit(limit - len(rows))).mappings()
            return rows

        self._prepare()
        return in_transaction(self._reading, step)


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
