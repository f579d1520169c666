"""Connections: closed if they do not ask in time, and few for each address.

uvicorn bounds the pause between two requests, not the time that the first header may take.
"""

from __future__ import annotations

import asyncio
import ipaddress
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

from angzarr.dashboard.access import is_loopback

#: Seconds in which a header must have come whole.
HEADER_TIME: Final = 10.0
#: Connections of one address that is no proxy: a browser's six, and its streams.
MOST_EACH: Final = 40


class Connection(H11Protocol):
    """A connection that must say what it wants."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a header, or close the connection at once if there are too many."""
        super().connection_made(transport)
        if self._are_too_many():
            transport.abort()
            return
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Take what came; part of a header buys no more time."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Wait for the next header."""
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _watch(self) -> None:
        waits = self.cycle is None or self.cycle.response_complete
        if not waits:
            self._stop_waiting()
        elif self._late is None and not self.transport.is_closing():
            self._late = self.loop.call_later(HEADER_TIME, self._give_up)

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _give_up(self) -> None:
        self._late = None
        self.transport.close()

    def _are_too_many(self) -> bool:
        address = _host(self)
        if is_loopback(address) or is_proxy(address, self.config.forwarded_allow_ips):
            return False
        return sum(_host(one) == address for one in self.connections) > MOST_EACH


def is_proxy(address: str, listed: Any) -> bool:
    """Tell whether *address* is *listed* by itself or in a network; `*` lists nobody."""
    names = listed.split(",") if isinstance(listed, str) else listed or ()
    for name in names:
        try:
            if ipaddress.ip_address(address) in ipaddress.ip_network(name.strip()):
                return True
        except ValueError:
            continue
    return False


def _host(connection: Any) -> str:
    return connection.client[0] if connection.client else ""
