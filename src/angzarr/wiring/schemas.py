"""Tables wiring: from settings to whoever looks after tables that have revisions."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from angzarr.errors import ConfigurationError
from angzarr.maintenance.schema_versions import TablesUpkeep
from angzarr.settings.settings import Settings
from angzarr.wiring import event_store as books_wiring
from angzarr.wiring import ledger as ledger_wiring
from angzarr.wiring import ordering as ordering_wiring
from angzarr.wiring.stores import extra


class _Door(NamedTuple):
    """Where settings and broker have the tables of a schema, if anywhere, and who opens them."""

    url: Callable[[Settings, str], str | None]
    open: Callable[[Settings, str], TablesUpkeep]


def openers(
    settings: Settings, broker: str, names: Sequence[str] = ()
) -> Mapping[str, Callable[[], TablesUpkeep]]:
    """Return what opens the upkeep of each of the schemas *names*, or of all that are configured.

    Raises ConfigurationError where none is; what is named and is not raises when it is opened.
    """
    wanted = names or [
        name
        for name, door in _DOORS.items()
        if door.url(settings, broker) not in {None, "memory://"}
    ]
    if not wanted:
        msg = (
            "no database is configured: set ledger, books or ordering.url, e.g."
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


def _opened(url: str, module: str, schema: str) -> TablesUpkeep:
    """Return the upkeep of *schema* in the database at *url*; connects when first used."""
    if url == "memory://":
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
    "ledger": _Door(ledger_wiring.ledger_url, ledger_wiring.open_upkeep),
    "books": _Door(books_wiring.books_url, _open_books),
    "ordering": _Door(ordering_wiring.ordering_url, _open_ordering),
}
NAMES: Final = tuple(_DOORS)
