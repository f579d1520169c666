"""Access log: one line for each login, wrong token and refusal; never a token."""

from __future__ import annotations

import ipaddress
import logging
from contextlib import suppress
from http import HTTPStatus
from typing import Final

from starlette.types import Scope

from angzarr.runtime.log_throttle import LogThrottle
from angzarr.runtime.text import printable

_LONGEST: Final = 200
#: Places among which strangers are counted, however many addresses they have.
PLACES: Final = 4096
#: Bits of an address of IPv6 that are one customer's; he has all addresses behind them.
_NETWORK: Final = 64
_WELCOME: Final = frozenset({"login", "logout"})
_log = logging.getLogger(__name__)


def note(outcome: str, scope: Scope, caller: str = "") -> None:
    """Write what became of a request: outcome, caller, address, method and path."""
    told = {
        "outcome": outcome,
        "caller": caller or "-",
        "address": address_of(scope) or "-",
        "method": scope["method"],
        "path": scope["path"],
    }
    fields = {name: _shown(value) for name, value in told.items()}
    level = logging.INFO if outcome in _WELCOME else logging.WARNING
    _log.log(
        level, "outcome=%s caller=%s address=%s method=%s path=%s", *fields.values(),
        extra={f"visit_{name}": value for name, value in fields.items()},
    )  # fmt: skip


class Refusals:
    """Notes answers that refuse. What a stranger can cause without end is told once a minute."""

    def __init__(self) -> None:
        self._seldom = LogThrottle()

    def note(self, status: int, name: str, scope: Scope) -> None:
        """Write a 403 or a 429; *name* says which, where it is known."""
        if status not in {HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS}:
            return
        caller = getattr(scope.get("state", {}).get("caller"), "name", "")
        outcome = name or HTTPStatus(status).phrase.lower().replace(" ", "-")
        bounded = caller and status == HTTPStatus.FORBIDDEN
        if bounded or self._seldom.now(f"{outcome} {caller} {place_of(scope)}"):
            note(outcome, scope, caller)


def address_of(scope: Scope) -> str:
    """The address that a request came from, or an empty string."""
    client = scope.get("client")
    return client[0] if client else ""


def place_of(scope: Scope) -> str:
    """Return by what a stranger is counted: one of so many places, chosen by his network.

    Two that meet there share a count, by chance and another one in each process.
    """
    address = address_of(scope)
    with suppress(ValueError):
        ip = ipaddress.ip_address(address.partition("%")[0])
        if ip.version == 6:  # noqa: PLR2004 - the version
            mapped = ip.ipv4_mapped
            address = str(mapped or ipaddress.IPv6Network((ip, _NETWORK), strict=False))
    return str(hash(address) % PLACES)


def _shown(value: str) -> str:
    """Return *value* as one word of a line: nobody writes a second line or field by it."""
    return printable(value)[:_LONGEST].replace(" ", "\ufffd").replace("=", "\ufffd")
