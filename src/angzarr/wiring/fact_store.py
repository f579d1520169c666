"""Opens the store in which people ask facts, and add some."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from angzarr.clock import SystemClock
from angzarr.errors import ConfigurationError
from angzarr.facts.fact import Fact
from angzarr.facts.fact_json import resolved_lines
from angzarr.facts.query import FactReader, FactStore
from angzarr.maintenance.retention import Aged, Pruning, PruningTurns
from angzarr.runtime.chance import chance
from angzarr.runtime.processes import PeriodicThread
from angzarr.settings.settings import Settings
from angzarr.wiring.stores import extra, facts_url, sql_engine

if TYPE_CHECKING:
    from angzarr.adapters.sql.facts.pruner import FactPruner


#: Old facts that are one file, and are deleted at once; a turn does no more.
_AT_ONCE: Final = 5_000


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


def open_fact_pruning(settings: Settings, broker: str) -> PeriodicThread | None:
    """The thread of an analysis worker that exports and deletes old facts; None: they are kept.

    An outage of facts, or a full disk, stops nothing else. Raises ConfigurationError where no
    table keeps facts.
    """
    keep, folder = settings.facts.keep, settings.facts.export
    if keep is None or folder is None:
        return None
    pruner = open_fact_pruner(settings, broker)
    reader = open_fact_store(settings, broker)
    exports = importlib.import_module("angzarr.adapters.files.fact_exports").FactExports(
        folder, partial(_lines, reader)
    )
    sql = importlib.import_module("angzarr.adapters.sql.facts.pruner")
    old = Aged(
        name="facts",
        what="facts that were exported",
        where=sql.ExportedFacts(pruner, exports.keep),
        keep=keep,
        batch=_AT_ONCE,
    )

    def close() -> None:
        pruner.close()
        reader.close()

    turns = PruningTurns(
        prunings=[Pruning(removal=old, clock=SystemClock())], chance=chance, close=close
    )
    return PeriodicThread("angzarr-fact-pruning", lambda _stopping: turns)


def _lines(reader: FactReader, facts: Sequence[Fact]) -> Iterator[bytes]:
    from angzarr.analysis.ledger.export import json_text  # which only an analysis worker needs

    for told in resolved_lines(reader, facts):
        yield json_text(told).encode() + b"\n"


def _url(settings: Settings, broker: str) -> str:
    url = facts_url(settings, broker)
    if url is None:
        msg = (
            "facts are kept in no database that can be asked: set facts.url,"
            " e.g. facts: {url: postgresql+psycopg://localhost/shop}"
        )
        raise ConfigurationError(msg)
    return url
