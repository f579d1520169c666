"""Connections: closed if they do not ask in time or do not read, and few for each address.

uvicorn bounds the pause between two requests, neither the time that the first header may take nor
the time that an answer may lie there unread.
"""

from __future__ import annotations

import asyncio
import ipaddress
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

from angzarr.dashboard.access import is_loopback

#: Seconds in which a header must have come whole.
HEADER_TIME: Final = 10.0
#: In so many seconds so many bytes of an answer that waits must have been read.
READ_TIME: Final = 30.0
LEAST_READ: Final = 32 * 1024
#: Connections of one address that is no proxy: a browser's six, and its streams.
MOST_EACH: Final = 40


class Connection(H11Protocol):
    """A connection that must say what it wants, and take what it asked for."""

    _late: asyncio.TimerHandle | None = None
    #: Looks whether an answer is read, and how many bytes of it waited at the last look.
    _unread: asyncio.TimerHandle | None = None
    _waited: int = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a header, or close the connection at once if there are too many."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(0)  # so that `pause_writing` tells of every unread byte
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
        self._stop_looking()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Begin to look whether what was sent is read."""
        super().pause_writing()
        self._look_later()

    def resume_writing(self) -> None:
        """Look no more: all of it was read."""
        self._stop_looking()
        super().resume_writing()

    def _look_later(self) -> None:
        self._waited = self.transport.get_write_buffer_size()
        self._unread = self.loop.call_later(READ_TIME, self._look)

    def _look(self) -> None:
        """Break off what is read too slowly: to close it would wait for the reader."""
        self._unread = None
        if self._waited - self.transport.get_write_buffer_size() < LEAST_READ:
            self.transport.abort()
        else:
            self._look_later()

    def _stop_looking(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

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
