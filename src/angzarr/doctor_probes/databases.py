"""Every database that an app uses: ledger, event books, order, facts, store of claims.

The register of the fleet, read without making it: a look changes nothing.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from angzarr.doctor import database_rules
from angzarr.doctor.database_rules import TablesSeen
from angzarr.doctor.finding import Finding, Probe
from angzarr.doctor_probes import Target
from angzarr.fleet import Member
from angzarr.maintenance.schema_versions import Revision
from angzarr.wiring import event_store as books_wiring
from angzarr.wiring import ledger as ledger_wiring
from angzarr.wiring import ordering as ordering_wiring
from angzarr.wiring import schemas as tables_wiring
from angzarr.wiring import stores as wiring
from angzarr.wiring.stores import extra

SQL: Final = ("postgresql", "sqlite")


def members(patient: Target) -> Sequence[Member]:
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


class _Database(NamedTuple):
    url: str
    roles: list[str]
    #: Schemas whose tables are there.
    schemas: list[str]


def probes(patient: Target) -> Iterator[Probe]:
    """Return a look at each database; raises ConfigurationError, MissingExtra."""
    if not patient.ours:
        return
    for at, database in _databases(patient).items():
        yield Probe(at=at, look=_look(patient, database))
    yield from _apart(patient)


def standing(patient: Target, schema: str) -> Revision | None:
    """Return the revision of *schema*'s tables; None where nobody keeps any."""
    url = _urls(patient).get(schema)
    if url is None or not url.startswith(SQL) or is_unmade(url):
        return None
    (opener,) = tables_wiring.openers(patient.settings, patient.broker_url, [schema]).values()
    with closing(opener()) as upkeep:
        return upkeep.revision()


def _urls(patient: Target) -> dict[str, str | None]:
    settings, broker = patient.settings, patient.broker_url
    return {
        "ledger": ledger_wiring.ledger_url(settings, broker),
        "books": books_wiring.books_url(settings, broker),
        "ordering": ordering_wiring.ordering_url(settings, broker),
        "store": settings.store,
        "facts": settings.facts.url,
    }


def _databases(patient: Target) -> dict[str, _Database]:
    found: dict[str, _Database] = {}
    for role, url in _urls(patient).items():
        if url is None or not url.startswith(SQL):
            continue
        database = found.setdefault(_name(url), _Database(url, [], []))
        database.roles.append(role)
        if role in tables_wiring.NAMES and not is_unmade(url):
            database.schemas.append(role)
    return found


def _name(url: str) -> str:
    with extra("psycopg"):
        examination = importlib.import_module("angzarr.adapters.sql.engine.doctor")
    name: str = examination.name_of(url)
    return name


def _look(patient: Target, database: _Database) -> Callable[[], Iterator[Finding]]:
    def look() -> Iterator[Finding]:
        examination = importlib.import_module("angzarr.adapters.sql.engine.doctor")
        seen = examination.examine(
            database.url,
            database.roles,
            timeout=patient.timeout,
            tables=[one for schema in database.schemas for one in _tables(patient, schema)],
            workers=_workers(patient),
        )
        yield from database_rules.findings(seen)

    return look


def _tables(patient: Target, schema: str) -> Iterator[TablesSeen]:
    settings = patient.settings
    migrates = {
        "ledger": settings.ledger_migrate,
        "books": settings.books_migrate,
        "ordering": settings.ordering.migrate,
    }
    revision = standing(patient, schema)
    if revision is not None:
        yield TablesSeen(schema=schema, revision=revision, migrates=migrates[schema])


def _workers(patient: Target) -> int | None:
    """Return how many workers live; None where nobody can tell now."""
    try:
        return len(members(patient))
    except Exception:  # noqa: BLE001 - another probe tells why
        return None


def _apart(patient: Target) -> Iterator[Probe]:
    """Return a look at whether lanes and event books share a database; asks no server."""
    urls = _urls(patient)
    books, ordering = urls["books"], urls["ordering"]
    ordered = any(handler.order is not None for handler in patient.app.known_handlers())
    if not ordered or not books or not ordering or not ordering.startswith(SQL):
        return
    if not books.startswith(SQL) or _name(books) == _name(ordering):
        return
    finding = database_rules.apart(patient.at, _name(ordering), _name(books))
    yield Probe(at=patient.at, look=lambda: [finding])
