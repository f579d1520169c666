"""Opens the store in which people ask facts, and add some."""

from __future__ import annotations

import importlib

from angzarr.errors import ConfigurationError
from angzarr.facts.query import FactStore
from angzarr.settings.settings import Settings
from angzarr.wiring.stores import facts_url, sql_engine


def open_fact_store(settings: Settings, broker: str) -> FactStore:
    """The store of facts, to be closed; it connects when it is first asked.

    Raises ConfigurationError where facts are kept in no database.
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
    store = sql.SqlFactReader(sql_engine(url), migrate=settings.facts.migrate)
    return store
