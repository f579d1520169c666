"""From settings to all that is kept in the ledger's database.

Whatever of it a process opens shares one pool of connections, which the last to be closed closes.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from angzarr.errors import ConfigurationError
from angzarr.settings.settings import Settings
from angzarr.wiring.stores import EMBEDDED, extra, is_embedded

if TYPE_CHECKING:  # the analysis is imported only where it is used
    from angzarr.adapters.sql.replay_jobs.store import SqlReplayJobs
    from angzarr.analysis.alerts.alert import Alerts
    from angzarr.analysis.ledger.counts import Peers
    from angzarr.analysis.ledger.emergency_stop import Brake
    from angzarr.analysis.ledger.group import Groups
    from angzarr.analysis.ledger.idempotent_requests import Writes
    from angzarr.analysis.ledger.ledger import Ledger
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
#: For people and for engines.
REPLAY_JOBS: Final[Part[SqlReplayJobs]] = Part(
    "angzarr.adapters.sql.replay_jobs.store", "SqlReplayJobs"
)
WRITES: Final[Part[Writes]] = Part("angzarr.adapters.sql.ledger.writes", "SqlWrites")
BRAKE: Final[Part[Brake]] = Part("angzarr.adapters.sql.ledger.brake", "SqlBrake")
PEERS: Final[Part[Peers]] = Part("angzarr.adapters.sql.ledger.groups", "SqlPeers")
ALERTS: Final[Part[Alerts]] = Part("angzarr.adapters.sql.ledger.alerts", "SqlAlerts")


def open_part(part: Part[P], settings: Settings, broker: str) -> P:
    """Return *part* of the ledger that *settings* name, to be closed; connects when first used.

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
    found: P = getattr(adapter, part.name)(database)
    return found


def open_upkeep(settings: Settings, broker: str) -> LedgerUpkeep:
    """Return what looks after the ledger, to be closed; raises what `open_part` does."""
    return open_part(UPKEEP, settings, broker)


def ledger_url(settings: Settings, broker: str) -> str | None:
    """Return where the ledger is; None: nowhere."""
    return settings.ledger or (EMBEDDED if is_embedded(broker) else None)
