"""Books wiring: from settings to event books and what became of rejected commands."""

from __future__ import annotations

import importlib
import random
import weakref
from collections.abc import Sequence
from typing import Final, NamedTuple

from angzarr.aggregates.book import EventBooks, EventStore
from angzarr.clock import SystemClock
from angzarr.errors import ConfigurationError
from angzarr.maintenance.retention import Aged, Pruning, PruningTurns
from angzarr.sagas.log import RejectionLog
from angzarr.settings.settings import Settings
from angzarr.wiring.stores import EMBEDDED, check_shared, extra, is_embedded


class Shelves(NamedTuple):
    """What is kept in the database of the event books. To be closed."""

    books: EventBooks
    rejections: RejectionLog

    def close(self) -> None:
        """Let connections go; safe to call twice."""
        self.books.close()
        self.rejections.close()


#: Those in memory, by the identity of their settings: all that an app opens are the same.
_IN_MEMORY: Final[dict[int, Shelves]] = {}


def open_shelves(settings: Settings, broker: str) -> Shelves:
    """Return where *settings* keep event books; connects when first used.

    Raises ConfigurationError, MissingExtra.
    """
    url = check_books(settings, broker)
    if url == "memory://":
        return _in_memory(settings)
    engines = importlib.import_module("angzarr.adapters.sql.engine.engine").ENGINES
    sql_books = importlib.import_module("angzarr.adapters.sql.event_store.books")
    sql_log = importlib.import_module("angzarr.adapters.sql.event_store.rejections")
    with extra("psycopg"):
        first, second = engines.borrow(url), engines.borrow(url)
    migrate = settings.books_migrate
    return Shelves(
        sql_books.SqlEventBooks(first.engine, close=first.close, migrate=migrate),
        sql_log.SqlRejectionLog(second.engine, close=second.close, migrate=migrate),
    )


def removals(books: EventBooks, rejections: RejectionLog, settings: Settings) -> Sequence[Aged]:
    """Return what goes some day of event books and of what became of rejected commands."""
    return (
        Aged(
            name="decisions",
            what="decisions of event books that were made long ago",
            where=books,
            keep=settings.books_keep_decisions,
        ),
        Aged(
            name="rejections",
            what="rejected commands that were closed long ago",
            where=rejections,
            keep=settings.books_keep_rejections,
        ),
    )


def open_pruning(settings: Settings, broker: str) -> PruningTurns:
    """Return what removes in turns what *settings* do not keep; raises as `open_shelves`."""
    shelves, clock = open_shelves(settings, broker), SystemClock()
    return PruningTurns(
        prunings=[Pruning(removal=one, clock=clock) for one in removals(*shelves, settings)],
        chance=random.random,
        close=shelves.close,
    )


def open_event_store(settings: Settings, broker: str) -> EventStore:
    """Return what reads all event books that *settings* name; connects when first used.

    To be closed. Raises ConfigurationError, MissingExtra.
    """
    url = check_books(settings, broker)
    if url == "memory://":
        memory = importlib.import_module("angzarr.adapters.memory.event_store")
        in_memory: EventStore = memory.MemoryEventStore(_in_memory(settings).books)
        return in_memory
    engines = importlib.import_module("angzarr.adapters.sql.engine.engine").ENGINES
    store = importlib.import_module("angzarr.adapters.sql.event_store.books").SqlEventStore
    with extra("psycopg"):
        lent = engines.borrow(url)
    in_sql: EventStore = store(lent.engine, close=lent.close, migrate=settings.books_migrate)
    return in_sql


def check_books(settings: Settings, broker: str) -> str:
    """Return the URL of the event books; raises ConfigurationError where not all share them."""
    url = books_url(settings, broker)
    if url is None:
        msg = (
            "aggregates and process managers keep event books, which projections are rebuilt from,"
            " and no database is configured for them: set books, e.g."
            " books: postgresql+psycopg://localhost/angzarr or ANGZARR_BOOKS"
        )
        raise ConfigurationError(msg)
    check_shared(url, broker, "event books", "books")
    return url


def _in_memory(settings: Settings) -> Shelves:
    key = id(settings)
    if key not in _IN_MEMORY:
        books = importlib.import_module("angzarr.adapters.memory.event_store").MemoryEventBooks()
        log = importlib.import_module("angzarr.adapters.memory.event_store").MemoryRejectionLog()
        weakref.finalize(settings, _IN_MEMORY.pop, key, None)
        _IN_MEMORY[key] = Shelves(books, log)
    return _IN_MEMORY[key]


def books_url(settings: Settings, broker: str) -> str | None:
    """Return where event books are, whether or not that serves *broker*; None: nowhere."""
    return settings.books or (EMBEDDED if is_embedded(broker) else None)
