"""Event books with very many events, written in bulk: what publishing would leave after years."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from sqlalchemy import Engine

from angzarr.adapters.sql.engine.engine import patient
from angzarr.adapters.sql.engine.statements import insert_rows
from angzarr.adapters.sql.event_store.books import SqlEventBooks
from angzarr.adapters.sql.event_store.tables import book_events, event_books, event_row, key_of
from angzarr.aggregates.book import Address
from angzarr.events.event import Event

DOMAIN = "account"
_THEN = datetime(2026, 11, 1, tzinfo=UTC)
_STEP = 2_000


def address_of(book: int) -> Address:
    """Return the address of a book by its number; they are in the order of their numbers."""
    return Address(DOMAIN, f"a-{book:07d}")


def fill(engine: Engine, books: int, each: int) -> None:
    """Make the tables and write so many books of *each* events."""
    SqlEventBooks(engine).read(address_of(0))
    with patient(engine) as slow, slow.connect() as connection:
        for start in range(0, books, _STEP):
            some = range(start, min(start + _STEP, books))
            with connection.begin():
                heads = [key_of(address_of(book)) | {"next_sequence": each} for book in some]
                insert_rows(connection, event_books, heads)
                insert_rows(
                    connection, book_events, [event_row(one) for one in _events(some, each)]
                )
    with patient(engine) as slow, slow.connect() as connection:
        connection.execution_options(isolation_level="AUTOCOMMIT")
        connection.exec_driver_sql("VACUUM ANALYZE")


def _events(books: range, each: int) -> Iterator[Event]:
    for book in books:
        address = address_of(book)
        for sequence in range(each):
            yield Event(
                id=f"booked-{book}-{sequence}",
                type="Booked",
                data={"account": address.root, "cents": sequence},
                domain=address.domain,
                root=address.root,
                sequence=sequence,
                occurred_at=_THEN,
            )
