"""Serving: the dashboard as a process, closed to other machines unless callers have tokens.

uvicorn bounds the pause between two requests, but neither the time that the first header may take
nor the time that an answer may lie unread. `GuardedConnection` bounds both, and the connections of
one address. uvicorn has no public hook for that: it takes the protocol class as a setting
(`http=`), and middleware sees neither a header that is not whole nor the bytes that wait in the
socket.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from angzarr.dashboard.access import is_loopback
from angzarr.dashboard.site import DashboardSite
from angzarr.errors import ConfigurationError
from angzarr.runtime.failures import LogThrottle
from angzarr.settings.dashboard import DashboardSettings

#: Seconds in which a header must have come whole.
HEADER_TIME: Final = 10.0
#: In so many seconds so many bytes of an answer that waits must have been read.
READ_TIME: Final = 30.0
LEAST_READ: Final = 32 * 1024
#: Connections of one address that is no proxy: a browser's six, and its streams.
MOST_EACH: Final = 40


class GuardedConnection(H11Protocol):
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
    """True if *address* is *listed* by itself or in a network; `*` lists no address."""
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


#: Connections at a time, streams of pages included.
_MOST_CONNECTIONS: Final = 200
#: Seconds that an idle connection is kept, and that requests under way get at the end.
_KEEP_ALIVE: Final = 5
_GRACE: Final = 10
_ANY: Final = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - compared, not bound


def check_binding(settings: DashboardSettings, host: str) -> None:
    """Refuse to serve other machines without tokens, or under names that are not listed."""
    if is_loopback(host):
        return
    if not settings.tokens:
        msg = (
            f"without tokens the dashboard serves this machine alone, not {host}: make one with"
            " `angzarr dashboard token NAME --role operator` and list it in dashboard.tokens"
        )
        raise ConfigurationError(msg)
    if host in _ANY and not settings.hosts:
        msg = (
            f"to serve on {host or 'all addresses'} list the names by which people reach it in"
            " dashboard.hosts, e.g. dashboard: {hosts: [dlq.example.com]}"
        )
        raise ConfigurationError(msg)


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens; raises ConfigurationError where that cannot be."""
    try:
        family = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=256)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        msg = f"the dashboard cannot listen on {host}:{port}: {why}"
        raise ConfigurationError(msg) from error


def serve(site: DashboardSite, listener: socket.socket) -> None:
    """Serve until SIGTERM or Ctrl-C; requests under way are answered first."""
    server_of(site).run(sockets=[listener])


def server_of(site: DashboardSite) -> uvicorn.Server:
    """The server of *site*."""
    _quieten(logging.getLogger("uvicorn.error"))
    config = uvicorn.Config(
        site.app,
        loop="asyncio",
        http=GuardedConnection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=_GRACE,
    )
    return _Server(config, site)


class _Quiet(logging.Filter):
    """Says what any stranger can cause once a minute; errors each time."""

    def __init__(self) -> None:
        super().__init__()
        self._throttle = LogThrottle()

    def filter(self, record: logging.LogRecord) -> bool:
        """True if *record* is written."""
        return record.levelno != logging.WARNING or self._throttle.now(str(record.msg))


def _quieten(log: logging.Logger) -> None:
    if not any(isinstance(one, _Quiet) for one in log.filters):
        log.addFilter(_Quiet())


class _Server(uvicorn.Server):
    """Ends pages' streams when it is told to stop, and then returns like any function."""

    def __init__(self, config: uvicorn.Config, site: DashboardSite) -> None:
        super().__init__(config)
        self._site = site

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - uvicorn's signature
        """Begin to stop; a second signal does not wait for requests."""
        self._site.streams.ending = True
        if self.should_exit:
            self.force_exit = True
        self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Listen to signals meanwhile; unlike the original, do not send them to ourselves again."""
        if threading.current_thread() is not threading.main_thread():
            yield  # which alone is told of signals
            return
        numbers = (signal.SIGTERM, signal.SIGINT)
        before = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
