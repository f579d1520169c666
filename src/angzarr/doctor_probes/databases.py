"""Every database of an app: ledger, event books, ordering, facts, claims, registry of workers."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from angzarr.doctor import database_rules
from angzarr.doctor.database_rules import TablesSeen
from angzarr.doctor.finding import Finding, Probe
from angzarr.doctor_probes import DoctorTarget
from angzarr.fleet import Member
from angzarr.maintenance.schema_versions import Revision
from angzarr.wiring import configuration as configuration_wiring
from angzarr.wiring import event_store as books_wiring
from angzarr.wiring import event_store as ordering_wiring
from angzarr.wiring import ledger as ledger_wiring
from angzarr.wiring import stores as wiring
from angzarr.wiring.stores import extra

SQL: Final = ("postgresql", "sqlite")


def members(target: DoctorTarget) -> Sequence[Member]:
    """The workers that run now; raises ConfigurationError, StoreUnavailable."""
    if not keeps_claims(target, "fleet_members"):
        return ()
    found: Sequence[Member] = target.ops.fleet().members()
    return found


def keeps_claims(target: DoctorTarget, table: str) -> bool:
    """False where claims are to be in a database that does not have *table* yet.

    To ask would make it. Raises ConfigurationError.
    """
    url = wiring.store_url(target.settings, target.broker_url)
    return not url.startswith(SQL) or _has_table(url, table)


def is_unmade(url: str) -> bool:
    """True if a file of SQLite's would only be made by looking at it."""
    return url.startswith("sqlite") and not Path(url.partition(":///")[2].split("?")[0]).exists()


def _has_table(url: str, table: str) -> bool:
    if is_unmade(url):
        return False
    with extra("psycopg"):
        doctor = importlib.import_module("angzarr.adapters.sql.engine.doctor")
    kept: bool = doctor.has_table(url, table)
    return kept


class _Database(NamedTuple):
    url: str
    roles: list[str]
    #: Schemas whose tables are there.
    schemas: list[str]


def probes(target: DoctorTarget) -> Iterator[Probe]:
    """A probe of each database; raises ConfigurationError, MissingExtra."""
    if not target.ours:
        return
    for at, database in _databases(target).items():
        yield Probe(at=at, look=_look(target, database))
    yield from _apart(target)


def standing(target: DoctorTarget, schema: str) -> Revision | None:
    """The revision of *schema*'s tables; None where there are none."""
    url = _urls(target).get(schema)
    if url is None or not url.startswith(SQL) or is_unmade(url):
        return None
    (opener,) = ledger_wiring.openers(target.settings, target.broker_url, [schema]).values()
    with closing(opener()) as upkeep:
        return upkeep.revision()


def _urls(target: DoctorTarget) -> dict[str, str | None]:
    settings, broker = target.settings, target.broker_url
    return {
        "ledger": ledger_wiring.ledger_url(settings, broker),
        "books": books_wiring.books_url(settings, broker),
        "ordering": ordering_wiring.ordering_url(settings, broker),
        "config": configuration_wiring.configuration_url(settings, broker),
        "store": settings.store,
        "facts": settings.facts.url,
    }


def _databases(target: DoctorTarget) -> dict[str, _Database]:
    found: dict[str, _Database] = {}
    for role, url in _urls(target).items():
        if url is None or not url.startswith(SQL):
            continue
        database = found.setdefault(_name(url), _Database(url, [], []))
        database.roles.append(role)
        if role in ledger_wiring.NAMES and not is_unmade(url):
            database.schemas.append(role)
    return found


def _name(url: str) -> str:
    with extra("psycopg"):
        doctor = importlib.import_module("angzarr.adapters.sql.engine.doctor")
    name: str = doctor.name_of(url)
    return name


def _look(target: DoctorTarget, database: _Database) -> Callable[[], Iterator[Finding]]:
    def look() -> Iterator[Finding]:
        doctor = importlib.import_module("angzarr.adapters.sql.engine.doctor")
        seen = doctor.examine(
            database.url,
            database.roles,
            timeout=target.timeout,
            tables=[one for schema in database.schemas for one in _tables(target, schema)],
            workers=_workers(target),
        )
        yield from database_rules.findings(seen)

    return look


def _tables(target: DoctorTarget, schema: str) -> Iterator[TablesSeen]:
    settings = target.settings
    migrates = {
        "ledger": settings.ledger_migrate,
        "books": settings.books_migrate,
        "ordering": settings.ordering.migrate,
        "config": settings.configuration.migrate,
        "facts": settings.facts.migrate,
    }
    revision = standing(target, schema)
    if revision is not None:
        yield TablesSeen(schema=schema, revision=revision, migrates=migrates[schema])


def _workers(target: DoctorTarget) -> int | None:
    """The number of live workers; None if it is unknown now."""
    try:
        return len(members(target))
    except Exception:  # noqa: BLE001 - another probe tells why
        return None


def _apart(target: DoctorTarget) -> Iterator[Probe]:
    """A probe for whether lanes and event books share a database; asks no server."""
    urls = _urls(target)
    books, ordering = urls["books"], urls["ordering"]
    ordered = any(handler.order is not None for handler in target.ops.known_handlers())
    if not ordered or not books or not ordering or not ordering.startswith(SQL):
        return
    if not books.startswith(SQL) or _name(books) == _name(ordering):
        return
    finding = database_rules.apart(target.at, _name(ordering), _name(books))
    yield Probe(at=target.at, look=lambda: [finding])
