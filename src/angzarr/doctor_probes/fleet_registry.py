"""The register of the fleet, read without making it: a look changes nothing."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from angzarr.doctor_probes.target import Patient
from angzarr.fleet import Member
from angzarr.wiring import stores as wiring
from angzarr.wiring.stores import extra

SQL: Final = ("postgresql", "sqlite")


def members(patient: Patient) -> Sequence[Member]:
    """Return the workers that run now; raises ConfigurationError, StoreUnavailable."""
    url = wiring.store_url(patient.settings, patient.broker_url)
    if url.startswith(SQL) and not _is_kept(url):
        return ()
    found: Sequence[Member] = patient.app.fleet().members()
    return found


def is_unmade(url: str) -> bool:
    """Tell whether a file of SQLite's would only be made by looking at it."""
    return url.startswith("sqlite") and not Path(url.partition(":///")[2].split("?")[0]).exists()


def _is_kept(url: str) -> bool:
    if is_unmade(url):
        return False
    with extra("psycopg"):
        examination = importlib.import_module("angzarr.adapters.sql.engine.doctor")
    kept: bool = examination.has_table(url, "fleet_members")
    return kept
