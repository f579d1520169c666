"""TLS in front of a server that speaks none, as a load balancer would put it there."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from typing import Self

from certificates import Certificates


class TlsProxy:
    """Forwards to *host*:*port* what comes over TLS from clients that show a certificate."""

    def __init__(self, host: str, port: int, files: Certificates) -> None:
        self._target = (host, port)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(files.certificate, files.key)
        self._context.load_verify_locations(files.authority)
        self._context.verify_mode = ssl.CERT_REQUIRED
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads: list[threading.Thread] = []
        self._open: list[socket.socket] = []

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        for end in (self._listener, *self._open):
            with contextlib.suppress(OSError):  # wakes the thread that is blocked on it
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(60)
        for end in (self._listener, *self._open):
            end.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                raw, _ = self._listener.accept()
                self._start(self._serve, raw)

    def _serve(self, raw: socket.socket) -> None:
        try:
            client = self._context.wrap_socket(raw, server_side=True)
        except OSError:
            raw.close()
            return
        server = socket.create_connection(self._target)
        self._open += [client, server]
        self._start(self._pump, server, client)
        self._pump(client, server)

    def _pump(self, here: socket.socket, there: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while part := here.recv(65536):
                there.sendall(part)
        for end in (here, there):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _start(self, target: object, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()
