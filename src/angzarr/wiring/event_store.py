"""From settings to the databases of events: event books, rejections, lanes and checkpoints."""

from __future__ import annotations

import importlib
import weakref
from collections.abc import Sequence
from typing import Final, NamedTuple

from angzarr.aggregates.book import EventBooks, EventStore
from angzarr.clock import SystemClock
from angzarr.delivery.handlers import Handlers
from angzarr.errors import ConfigurationError
from angzarr.maintenance.retention import Aged, Pruning, PruningTurns
from angzarr.ordering.lane import Order
from angzarr.projections.checkpoint import OrderingStores
from angzarr.runtime.chance import chance
from angzarr.sagas.log import RejectionLog
from angzarr.settings.settings import Settings
from angzarr.wiring.stores import EMBEDDED, check_shared, extra, is_embedded


class EventDatabase(NamedTuple):
    """The stores in the database of the event books. To be closed."""

    books: EventBooks
    rejections: RejectionLog

    def close(self) -> None:
        """Let connections go; safe to call twice."""
        self.books.close()
        self.rejections.close()


#: Those in memory, by the identity of their settings: all that an app opens are the same.
_IN_MEMORY: Final[dict[int, EventDatabase]] = {}


def open_event_stores(settings: Settings, broker: str) -> EventDatabase:
    """The event books and rejections that *settings* name; connects when first used.

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
    return EventDatabase(
        sql_books.SqlEventBooks(first.engine, close=first.close, migrate=migrate),
        sql_log.SqlRejectionLog(second.engine, close=second.close, migrate=migrate),
    )


def removals(books: EventBooks, rejections: RejectionLog, settings: Settings) -> Sequence[Aged]:
    """The removals of old rows from event books and from the log of rejected commands."""
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
    """A pruning, in turns, of rows that *settings* do not keep; raises as `open_event_stores`."""
    event_stores, clock = open_event_stores(settings, broker), SystemClock()
    return PruningTurns(
        prunings=[Pruning(removal=one, clock=clock) for one in removals(*event_stores, settings)],
        chance=chance,
        close=event_stores.close,
    )


def open_event_store(settings: Settings, broker: str) -> EventStore:
    """A reader of all event books that *settings* name; connects when first used.

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
    """The URL of the event books; raises ConfigurationError where not all share them."""
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


def _in_memory(settings: Settings) -> EventDatabase:
    key = id(settings)
    if key not in _IN_MEMORY:
        books = importlib.import_module("angzarr.adapters.memory.event_store").MemoryEventBooks()
        log = importlib.import_module("angzarr.adapters.memory.event_store").MemoryRejectionLog()
        weakref.finalize(settings, _IN_MEMORY.pop, key, None)
        _IN_MEMORY[key] = EventDatabase(books, log)
    return _IN_MEMORY[key]


def books_url(settings: Settings, broker: str) -> str | None:
    """The URL of the event books, whether or not that serves *broker*; None: nowhere."""
    return settings.books or (EMBEDDED if is_embedded(broker) else None)


def orders_of(handlers: Handlers) -> dict[str, Order]:
    """The order of each handler that has one, by name, in order of registration."""
    return {handler.name: handler.order for handler in handlers if handler.order}


def open_ordering(settings: Settings, broker: str) -> OrderingStores:
    """The lanes and checkpoints that *settings* name; connects when first used.

    Raises ConfigurationError, MissingExtra.
    """
    url = check_ordering(settings, broker)
    if url == "memory://":
        lanes = importlib.import_module("angzarr.adapters.memory.lanes").MemoryLanes()
        return OrderingStores(lanes, lanes.checkpoints)
    engines = importlib.import_module("angzarr.adapters.sql.engine.engine").ENGINES
    with extra("psycopg"):
        lent = engines.borrow(url)
    sql_lanes = importlib.import_module("angzarr.adapters.sql.ordering.store")
    sql_checkpoints = importlib.import_module("angzarr.adapters.sql.ordering.checkpoints")
    migrate = settings.ordering.migrate
    return OrderingStores(
        sql_lanes.SqlLanes(lent.engine, close=lent.close, migrate=migrate),
        sql_checkpoints.SqlCheckpoints(lent.engine, close=lent.close, migrate=migrate),
    )


def check_ordering(settings: Settings, broker: str) -> str:
    """The URL of the order; raises ConfigurationError where not all share it."""
    url = ordering_url(settings, broker)
    if url is None:
        msg = (
            "ordered handlers and projections keep their order in a database, and none is"
            " configured for it: set ordering.url, e.g. ordering: {url:"
            " postgresql+psycopg://localhost/angzarr} or ANGZARR_ORDERING__URL"
        )
        raise ConfigurationError(msg)
    check_shared(url, broker, "the order of events", "ordering.url")
    return url


def ordering_url(settings: Settings, broker: str) -> str | None:
    """The URL of the order's database, whether or not it serves *broker*; None: there is none."""
    return settings.ordering.url or settings.books or _by_default(settings, broker)


def _by_default(settings: Settings, broker: str) -> str | None:
    """The database that is there anyway, if one is."""
    if is_embedded(broker):
        return EMBEDDED
    store = settings.store
    return store if store is not None and store.startswith("postgresql") else None
