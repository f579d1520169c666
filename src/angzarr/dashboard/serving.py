"""Serving: the dashboard as a process, closed to other machines unless callers have tokens."""

from __future__ import annotations

import logging
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

import uvicorn

from angzarr.dashboard.access import is_loopback
from angzarr.dashboard.connections import Connection
from angzarr.dashboard.site import Site
from angzarr.errors import ConfigurationError
from angzarr.runtime.log_throttle import LogThrottle
from angzarr.settings.dashboard import DashboardSettings

#: Connections at a time, streams of pages included.
_MOST_CONNECTIONS: Final = 200
#: Seconds that an idle connection is kept, and that requests under way get at the end.
_KEEP_ALIVE: Final = 5
_GRACE: Final = 10
_ANY: Final = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - compared, not bound


def check_binding(settings: DashboardSettings, host: str) -> None:
    """Refuse to serve other machines without tokens, or under names nobody listed."""
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
    """Return a socket that listens; raises ConfigurationError where that cannot be."""
    try:
        family = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=256)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        msg = f"the dashboard cannot listen on {host}:{port}: {why}"
        raise ConfigurationError(msg) from error


def serve(site: Site, listener: socket.socket) -> None:
    """Serve until SIGTERM or Ctrl-C; requests under way are answered first."""
    server_of(site).run(sockets=[listener])


def server_of(site: Site) -> uvicorn.Server:
    """Return what serves *site*."""
    _quieten(logging.getLogger("uvicorn.error"))
    config = uvicorn.Config(
        site.app,
        loop="asyncio",
        http=Connection,
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
        self._seldom = LogThrottle()

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether *record* is written."""
        return record.levelno != logging.WARNING or self._seldom.now(str(record.msg))


def _quieten(log: logging.Logger) -> None:
    if not any(isinstance(one, _Quiet) for one in log.filters):
        log.addFilter(_Quiet())


class _Server(uvicorn.Server):
    """Ends pages' streams when it is told to stop, and then returns like any function."""

    def __init__(self, config: uvicorn.Config, site: Site) -> None:
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
