"""From settings to the ledger's database, and to the upkeep of all tables that have versions.

The parts of a ledger that a process opens share one pool of connections, which the last one closes.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from angzarr.errors import ConfigurationError
from angzarr.maintenance.schema_versions import TablesUpkeep
from angzarr.settings.settings import Settings
from angzarr.wiring import configuration as configuration_wiring
from angzarr.wiring import event_store as books_wiring
from angzarr.wiring import event_store as ordering_wiring
from angzarr.wiring.stores import EMBEDDED, extra, facts_url, is_embedded

if TYPE_CHECKING:  # the analysis is imported only where it is used
    from angzarr.adapters.sql.ledger.fact_outbox import LedgerFactOutbox
    from angzarr.adapters.sql.replay_jobs.store import SqlReplayJobs
    from angzarr.analysis.alerts.alert import Alerts
    from angzarr.analysis.ledger.counts import Peers
    from angzarr.analysis.ledger.emergency_stop import Brake
    from angzarr.analysis.ledger.group import Groups
    from angzarr.analysis.ledger.idempotent_requests import Writes
    from angzarr.analysis.ledger.ledger import Ledger
    from angzarr.analysis.ledger.payload_upkeep import ReleasedPayloads
    from angzarr.analysis.ledger.upkeep import LedgerUpkeep

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class Part(Generic[P]):
    """A port whose adapter keeps it in the ledger's database: module and class of that."""

    module: str
    name: str


LEDGER: Final[Part[Ledger]] = Part("angzarr.adapters.sql.ledger.store", "SqlLedger")
GROUPS: Final[Part[Groups]] = Part("angzarr.adapters.sql.ledger.groups", "SqlGroups")
UPKEEP: Final[Part[LedgerUpkeep]] = Part("angzarr.adapters.sql.ledger.database", "SqlUpkeep")
RELEASED_PAYLOADS: Final[Part[ReleasedPayloads]] = Part(
    "angzarr.adapters.sql.ledger.released_payloads", "SqlReleasedPayloads"
)
#: For people and for engines.
REPLAY_JOBS: Final[Part[SqlReplayJobs]] = Part(
    "angzarr.adapters.sql.replay_jobs.store", "SqlReplayJobs"
)
WRITES: Final[Part[Writes]] = Part("angzarr.adapters.sql.ledger.writes", "SqlWrites")
BRAKE: Final[Part[Brake]] = Part("angzarr.adapters.sql.ledger.brake", "SqlBrake")
PEERS: Final[Part[Peers]] = Part("angzarr.adapters.sql.ledger.groups", "SqlPeers")
#: Facts of acts that wait for their relay.
FACTS: Final[Part[LedgerFactOutbox]] = Part(
    "angzarr.adapters.sql.ledger.fact_outbox", "LedgerFactOutbox"
)
ALERTS: Final[Part[Alerts]] = Part("angzarr.adapters.sql.ledger.alerts", "SqlAlerts")


def open_part(part: Part[P], settings: Settings, broker: str, **options: Any) -> P:
    """The *part* of the ledger that *settings* name, to be closed; connects when first used.

    Its adapter is made with *options*.
    Raises ConfigurationError, MissingExtra.
    """
    url = ledger_url(settings, broker)
    if url is None:
        msg = (
            "no ledger is configured: set ledger to a database, e.g."
            " ledger: postgresql+psycopg://localhost/angzarr or ANGZARR_LEDGER"
        )
        raise ConfigurationError(msg)
    databases = importlib.import_module("angzarr.adapters.sql.ledger.database")
    adapter = importlib.import_module(part.module)
    with extra("psycopg"):
        database = databases.open_database(url, migrate=settings.ledger_migrate)
    found: P = getattr(adapter, part.name)(database, **options)
    return found


def open_upkeep(settings: Settings, broker: str) -> LedgerUpkeep:
    """The upkeep of the ledger, to be closed; raises what `open_part` does."""
    return open_part(UPKEEP, settings, broker)


def ledger_url(settings: Settings, broker: str) -> str | None:
    """The URL of the ledger; None: nowhere."""
    return settings.ledger or (EMBEDDED if is_embedded(broker) else None)


class _Door(NamedTuple):
    """Where settings and broker have the tables of a schema, if anywhere, and who opens them."""

    url: Callable[[Settings, str], str | None]
    open: Callable[[Settings, str], TablesUpkeep]


def openers(
    settings: Settings, broker: str, names: Sequence[str] = ()
) -> Mapping[str, Callable[[], TablesUpkeep]]:
    """An opener for the upkeep of each of the schemas *names*, or of all that are configured.

    Raises ConfigurationError where none is; one named but not configured raises when opened.
    """
    wanted = names or [
        name
        for name, door in _DOORS.items()
        if not (door.url(settings, broker) or "memory").startswith("memory")
    ]
    if not wanted:
        msg = (
            "no database is configured: set ledger, books, facts.url or ordering.url, e.g."
            " ledger: postgresql+psycopg://localhost/angzarr"
        )
        raise ConfigurationError(msg)
    return {name: _opener(_DOORS[name], settings, broker) for name in wanted}


def _opener(door: _Door, settings: Settings, broker: str) -> Callable[[], TablesUpkeep]:
    return lambda: door.open(settings, broker)


def _open_books(settings: Settings, broker: str) -> TablesUpkeep:
    return _opened(
        books_wiring.check_books(settings, broker),
        "angzarr.adapters.sql.event_store.tables",
        "BOOKS",
    )


def _open_ordering(settings: Settings, broker: str) -> TablesUpkeep:
    return _opened(
        ordering_wiring.check_ordering(settings, broker),
        "angzarr.adapters.sql.ordering.tables",
        "ORDERING",
    )


def _open_facts(settings: Settings, broker: str) -> TablesUpkeep:
    url = facts_url(settings, broker)
    if url is None:
        msg = "no table of facts is configured: set facts.url or ANGZARR_FACTS__URL to a database"
        raise ConfigurationError(msg)
    return _opened(url, "angzarr.adapters.sql.facts.tables", "FACTS")


def _config_url(settings: Settings, broker: str) -> str | None:
    """The URL of the configurations where they are in a database; None: they are not."""
    url = configuration_wiring.configuration_url(settings, broker)
    return url if url is not None and url.startswith(("sqlite", "postgresql", "memory")) else None


def _open_config(settings: Settings, broker: str) -> TablesUpkeep:
    url = configuration_wiring.check_configuration(settings, broker)
    if url.startswith("redis"):
        msg = "configurations are kept in Redis, where there are no tables to look after"
        raise ConfigurationError(msg)
    return _opened(url, "angzarr.adapters.sql.configuration.tables", "CONFIG")


def _opened(url: str, module: str, schema: str) -> TablesUpkeep:
    """The upkeep of *schema* in the database at *url*; connects when first used."""
    if url.startswith("memory"):
        msg = f"{schema.lower()} are kept in memory, where there are no tables to look after"
        raise ConfigurationError(msg)
    with extra("psycopg"):
        lent = importlib.import_module("angzarr.adapters.sql.engine.engine").ENGINES.borrow(url)
    upkeeps = importlib.import_module("angzarr.adapters.sql.engine.schema")
    found = getattr(importlib.import_module(module), schema)
    upkeep: TablesUpkeep = upkeeps.SqlTablesUpkeep(found, lent.engine, lent.close)
    return upkeep


#: By the name of the schema.
_DOORS: Final[Mapping[str, _Door]] = {
    "ledger": _Door(ledger_url, open_upkeep),
    "books": _Door(books_wiring.books_url, _open_books),
    "ordering": _Door(ordering_wiring.ordering_url, _open_ordering),
    "facts": _Door(facts_url, _open_facts),
    "config": _Door(_config_url, _open_config),
}
NAMES: Final = tuple(_DOORS)
