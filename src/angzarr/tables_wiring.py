"""Tables wiring: from settings to whoever looks after tables that have revisions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from angzarr import books_wiring, ledger_wiring
from angzarr.errors import ConfigurationError
from angzarr.revisions import TablesUpkeep
from angzarr.settings import Settings


class _Door(NamedTuple):
    """Tells whether settings and broker have a database for it, and opens its upkeep."""

    configured: Callable[[Settings, str], bool]
    open: Callable[[Settings, str], TablesUpkeep]


#: By the name of the schema.
_DOORS: Final[Mapping[str, _Door]] = {
    "ledger": _Door(ledger_wiring.has_tables, ledger_wiring.open_upkeep),
    "books": _Door(books_wiring.has_tables, books_wiring.open_upkeep),
}
NAMES: Final = tuple(_DOORS)


def openers(
    settings: Settings, broker: str, names: Sequence[str] = ()
) -> Mapping[str, Callable[[], TablesUpkeep]]:
    """Return what opens the upkeep of each of the schemas *names*, or of all that are configured.

    Raises ConfigurationError where none is; what is named and is not raises when it is opened.
    """
    wanted = names or [name for name in NAMES if _DOORS[name].configured(settings, broker)]
    if not wanted:
        msg = (
            "no database is configured: set ledger or books, e.g."
            " ledger: postgresql+psycopg://localhost/angzarr"
        )
        raise ConfigurationError(msg)
    return {name: _opener(_DOORS[name], settings, broker) for name in wanted}


def _opener(door: _Door, settings: Settings, broker: str) -> Callable[[], TablesUpkeep]:
    return lambda: door.open(settings, broker)
