"""From settings to all that is kept in the ledger's database."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from angzarr.errors import ConfigurationError
from angzarr.settings import Settings
from angzarr.wiring import EMBEDDED, is_embedded, sql_engine

if TYPE_CHECKING:  # the analysis is imported only where it is used
    from angzarr.analysis.alert import Alerts
    from angzarr.analysis.brake import Brake
    from angzarr.analysis.group import Groups
    from angzarr.analysis.ledger import Ledger
    from angzarr.analysis.peers import Peers
    from angzarr.analysis.upkeep import LedgerUpkeep
    from angzarr.analysis.write import Writes


def open_ledger(settings: Settings, broker: str) -> Ledger:
    """Return the ledger that the analysis worker keeps."""
    found: Ledger = _opened("ledger", "SqlLedger", settings, broker)
    return found


def open_groups(settings: Settings, broker: str) -> Groups:
    """Return the groups of the ledger."""
    found: Groups = _opened("ledger_groups", "SqlGroups", settings, broker)
    return found


def open_ledger_upkeep(settings: Settings, broker: str) -> LedgerUpkeep:
    """Return what looks after the ledger's tables."""
    found: LedgerUpkeep = _opened("ledger_upkeep", "SqlUpkeep", settings, broker)
    return found


def open_writes(settings: Settings, broker: str) -> Writes:
    """Return what remembers the writes of the HTTP API."""
    found: Writes = _opened("writes", "SqlWrites", settings, broker)
    return found


def open_brake(settings: Settings, broker: str) -> Brake:
    """Return the brake of the ledger's replays."""
    found: Brake = _opened("brake", "SqlBrake", settings, broker)
    return found


def open_replay_jobs(settings: Settings, broker: str) -> Any:
    """Return the replay jobs, for people and for engines."""
    return _opened("jobs", "SqlReplayJobs", settings, broker)


def open_peers(settings: Settings, broker: str) -> Peers:
    """Return what tells how many events of the ledger fare."""
    found: Peers = _opened("peers", "SqlPeers", settings, broker)
    return found


def open_alerts(settings: Settings, broker: str) -> Alerts:
    """Return the alerts about what is in the ledger."""
    found: Alerts = _opened("alerts", "SqlAlerts", settings, broker)
    return found


def _opened(module: str, name: str, settings: Settings, broker: str) -> Any:
    """Return the adapter called *name* with a database of its own; connects when first used."""
    url = settings.ledger or (EMBEDDED if is_embedded(broker) else None)
    if url is None:
        msg = (
            "no ledger is configured: set ledger to a database, e.g."
            " ledger: postgresql+psycopg://localhost/angzarr or ANGZARR_LEDGER"
        )
        raise ConfigurationError(msg)
    database = importlib.import_module("angzarr.adapters.sql.ledger_database")
    adapter = importlib.import_module(f"angzarr.adapters.sql.{module}")
    return getattr(adapter, name)(
        database.LedgerDatabase(sql_engine(url), migrate=settings.ledger_migrate)
    )
