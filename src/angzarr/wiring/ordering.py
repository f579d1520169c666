"""Ordering wiring: from settings to the lanes of ordered handlers and to checkpoints."""

from __future__ import annotations

import importlib

from angzarr.delivery.handlers import Handlers
from angzarr.errors import ConfigurationError
from angzarr.ordering.lane import Order
from angzarr.projections.checkpoint import OrderingStores
from angzarr.settings.settings import Settings
from angzarr.wiring.stores import EMBEDDED, check_shared, extra, is_embedded


def orders_of(handlers: Handlers) -> dict[str, Order]:
    """Return the order of each handler that has one, by name, in order of registration."""
    return {handler.name: handler.order for handler in handlers if handler.order}


def open_ordering(settings: Settings, broker: str) -> OrderingStores:
    """Return where *settings* keep lanes and checkpoints; connects when first used.

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
    """Return the URL of the order; raises ConfigurationError where not all share it."""
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
    """Return the database of the order, whether or not it serves *broker*; None: there is none."""
    return settings.ordering.url or settings.books or _by_default(settings, broker)


def _by_default(settings: Settings, broker: str) -> str | None:
    """Return the database that is there anyway, if one is."""
    if is_embedded(broker):
        return EMBEDDED
    store = settings.store
    return store if store is not None and store.startswith("postgresql") else None
