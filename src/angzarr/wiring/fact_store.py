"""Opens the store in which people ask facts, and add some."""

from __future__ import annotations

import importlib
from datetime import timedelta

from angzarr.errors import ConfigurationError
from angzarr.facts.query import FactStore
from angzarr.settings.settings import Settings
from angzarr.wiring.stores import extra, facts_url


def open_fact_store(
    settings: Settings, broker: str, *, within: timedelta | None = None
) -> FactStore:
    """The store of facts, to be closed; it connects when it is first asked.

    *within* bounds a connect and an answer instead of the usual time; then the table is not
    upgraded, which may take long. Raises ConfigurationError where facts are kept in no database.
    """
    url = facts_url(settings, broker)
    if url is None:
        msg = (
            "facts are kept in no database that can be asked: set facts.url,"
            " e.g. facts: {url: postgresql+psycopg://localhost/shop}"
        )
        raise ConfigurationError(msg)
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
