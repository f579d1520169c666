"""HealthServer: answers probes beside everything else, on the standard library's server.

Clients may be slow or hostile: a request has a few seconds in all, few are served at a time
(one more ends the oldest) and few in a second, headers are bounded by the standard library, bodies
are not read, and every connection ends after its answer.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, NamedTuple

from angzarr.errors import ConfigurationError

_log = logging.getLogger("angzarr.health")

#: Seconds that one connection may take, whatever it does meanwhile.
LONGEST: Final = 5.0
#: Connections that are served at a time.
MOST: Final = 16
#: Seconds between two connections: a flood of them must not keep the worker busy.
APART: Final = 0.01
#: Seconds between two looks for connections that took too long.
LOOKED_EVERY: Final = 0.5
#: Characters of a path that is looked up.
_LONGEST_PATH: Final = 100

JSON: Final = "application/json"


class HttpAnswer(NamedTuple):
    """What is answered to a GET."""

    status: int
    body: bytes
    content_type: str = JSON


class HealthServer:
    """Serves *answers*, by path, on *host* and *port* from threads of its own."""

    def __init__(
        self, host: str, port: int, answers: Mapping[str, Callable[[], HttpAnswer]]
    ) -> None:
        self._host, self._port = host, port
        self._answers = answers
        self._server: _HealthHttpServer | None = None

    def start(self) -> None:
        """Listen from now on; raises ConfigurationError where that cannot be."""
        try:
            self._server = _HealthHttpServer(_address(self._host, self._port), self._answers)
        except OSError as error:
            msg = (
                f"health.port {self._port} on {self._host} cannot be listened on"
                f" ({error.strerror or error}): give each process of this machine a port of its own"
            )
            raise ConfigurationError(msg) from error
        threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": LOOKED_EVERY},
            name="angzarr-health",
            daemon=True,
        ).start()

    def end(self) -> None:
        """Listen no more. Does nothing in a process that inherited it."""
        server, self._server = self._server, None
        if server is not None and server.pid == os.getpid():
            server.shutdown()
            server.server_close()


class _HealthHttpServer(ThreadingHTTPServer):
    """Bounded in connections and in time."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = MOST

    def __init__(
        self,
        address: tuple[socket.AddressFamily, tuple[Any, ...]],
        answers: Mapping[str, Callable[[], HttpAnswer]],
    ) -> None:
        self.address_family, at = address
        self.answers = answers
        self.pid = os.getpid()
        #: Connections → when they began, the oldest first.
        self._open: dict[socket.socket, float] = {}
        self._lock = threading.Lock()
        super().__init__(at, _Handler)  # IPv6 has two numbers more
        # A child would keep the port after its parent died, and never answer.
        leave = weakref.WeakMethod(self._leave)
        os.register_at_fork(after_in_child=lambda: (alive := leave()) and alive())

    def server_bind(self) -> None:
        """Bind: on ``::`` to all addresses of both kinds."""
        if self.address_family == socket.AF_INET6:
            with suppress(OSError):
                self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "angzarr", self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread; the oldest connection makes room if there are too many."""
        with self._lock:
            oldest = next(iter(self._open)) if len(self._open) >= MOST else None
            self._open[request] = time.monotonic()
        if oldest is not None:
            self._cut(oldest)
        super().process_request(request, client_address)
        time.sleep(APART)

    def service_actions(self) -> None:
        """End what took too long; called every half second."""
        with self._lock:
            late = [one for one, at in self._open.items() if time.monotonic() - at > LONGEST]
        for request in late:
            self._cut(request)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - socketserver's
        """Log it for debugging only: clients may hang up at any moment."""
        _log.debug("health_request_broke", exc_info=True)

    def _cut(self, request: socket.socket) -> None:
        """Let the thread that reads from *request* find that it ended."""
        with self._lock:
            self._open.pop(request, None)
        with suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)

    def _leave(self) -> None:
        """Close what this forked child has inherited, without a word to who is connected."""
        for one in (self.socket, *list(self._open)):
            with suppress(OSError):
                one.close()


class _Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: _HealthHttpServer
    timeout = LONGEST

    def do_GET(self) -> None:
        """Answer what is asked by path; what follows a question mark is ignored."""
        path = self.path[:_LONGEST_PATH].partition("?")[0]
        answer = self.server.answers.get(path)
        if answer is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        try:
            self._send(answer())
        except OSError:
            raise
        except Exception:  # noqa: BLE001 - it must not end the thread without an answer
            _log.exception("health_not_told: of %s", path)
            self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse in a few words, none of which came with the request."""
        del message, explain
        status = HTTPStatus(code)
        if status == HTTPStatus.NOT_IMPLEMENTED:  # as the standard library sees other verbs
            status = HTTPStatus.METHOD_NOT_ALLOWED
        known = ", ".join(self.server.answers)
        said = {"error": f"{status.phrase}: this port answers to GET {known}"}
        self._send(HttpAnswer(status, json.dumps(said).encode()))

    def version_string(self) -> str:
        """What serves, without versions."""
        return "angzarr"

    def log_message(self, format: str, *args: Any) -> None:
        """Write no line for each probe."""

    def _send(self, answer: HttpAnswer) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Connection", "close")
        if answer.status == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)


def _address(host: str, port: int) -> tuple[socket.AddressFamily, tuple[Any, ...]]:
    """What *host* is on this machine; raises OSError."""
    found = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICSERV
    )
    family, _, _, _, at = found[0]
    return family, at
