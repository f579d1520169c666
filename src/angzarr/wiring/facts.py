"""From settings to what answers questions about facts."""

from __future__ import annotations

import importlib

from angzarr.facts.query import FactReader
from angzarr.settings.settings import Settings
from angzarr.wiring.stores import extra, facts_url


def open_fact_reader(settings: Settings, broker: str) -> FactReader | None:
    """What answers questions about facts, to be closed; None: nothing keeps them to be asked."""
    url = facts_url(settings, broker)
    if url is None:
        return None
    reader: FactReader
    if url.startswith("memory"):
        log = importlib.import_module("angzarr.adapters.memory.facts").shared(url)
        reader = importlib.import_module("angzarr.adapters.memory.fact_reader").MemoryFactReader(
            log
        )
        return reader
    with extra("psycopg"):
        lent = importlib.import_module("angzarr.adapters.sql.engine.engine").ENGINES.borrow(url)
    sql = importlib.import_module("angzarr.adapters.sql.facts.reader")
    reader = sql.SqlFactReader(lent.engine, migrate=settings.facts.migrate, close=lent.close)
    return reader
