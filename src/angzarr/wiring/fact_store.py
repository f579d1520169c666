"""Opens the store in which people ask facts, and add some."""

from __future__ import annotations

import importlib
from datetime import timedelta
from typing import TYPE_CHECKING

from angzarr.errors import ConfigurationError
from angzarr.facts.query import FactStore
from angzarr.settings.settings import Settings
from angzarr.wiring.stores import extra, facts_url, sql_engine

if TYPE_CHECKING:
    from angzarr.adapters.sql.facts.pruner import FactPruner


def open_fact_store(
    settings: Settings, broker: str, *, within: timedelta | None = None
) -> FactStore:
    """The store of facts, to be closed; it connects when it is first asked.

    *within* bounds a connect and an answer instead of the usual time; then the table is not
    upgraded, which may take long. Raises ConfigurationError where facts are kept in no database.
    """
    url = _url(settings, broker)
    store: FactStore
    if url.startswith("memory"):
        log = importlib.import_module("angzarr.adapters.memory.facts").shared(url)
        memory = importlib.import_module("angzarr.adapters.memory.fact_reader")
        store = memory.MemoryFactReader(log)
        return store
    sql = importlib.import_module("angzarr.adapters.sql.facts.reader")
    engines = importlib.import_module("angzarr.adapters.sql.engine.engine")
    with extra("psycopg"):
        engine = engines.build_engine(url, timeout=within or engines.DEFAULT_TIMEOUT)
    store = sql.SqlFactReader(engine, migrate=settings.facts.migrate and within is None)
    return store


def open_fact_pruner(settings: Settings, broker: str) -> FactPruner:
    """What deletes old facts; to be closed. Raises ConfigurationError where no table keeps them."""
    url = _url(settings, broker)
    if url.startswith("memory"):
        msg = "facts are kept in memory, where there is nothing to prune"
        raise ConfigurationError(msg)
    pruner = importlib.import_module("angzarr.adapters.sql.facts.pruner")
    made: FactPruner = pruner.FactPruner(sql_engine(url))
    return made


def _url(settings: Settings, broker: str) -> str:
    url = facts_url(settings, broker)
    if url is None:
        msg = (
            "facts are kept in no database that can be asked: set facts.url,"
            " e.g. facts: {url: postgresql+psycopg://localhost/shop}"
        )
        raise ConfigurationError(msg)
    return url
