"""Cable: a TCP proxy before a server, which can be cut, stopped up and mended."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

LOOPBACK = "127.0.0.1"


class Cable:
    """Forwards a port of this machine to *host*:*port*, unless it was told to fail."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port = int(self._listener.getsockname()[1])
        self._lock = threading.Lock()
        self._ends: set[socket.socket] = set()
        self._is_cut = False
        self._flows = threading.Event()
        self._flows.set()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """End every connection, and each new one at once, until `mend`."""
        with self._lock:
            self._is_cut = True
            while self._ends:
                _close(self._ends.pop())

    def stall(self) -> None:
        """Let nothing through until `mend`, with all connections open and new ones taken."""
        self._flows.clear()

    def mend(self) -> None:
        """Let connections through again, with what was under way."""
        with self._lock:
            self._is_cut = False
        self._flows.set()

    def close(self) -> None:
        """End everything."""
        _close(self._listener)
        self._flows.set()
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                self._connect(self._listener.accept()[0])

    def _connect(self, client: socket.socket) -> None:
        with self._lock, suppress(OSError):
            if not self._is_cut:
                server = socket.create_connection(self._target)
                self._ends |= {client, server}
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=self._carry, args=pair, daemon=True).start()
                return
        _close(client)

    def _carry(self, source: socket.socket, to: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                self._flows.wait()
                to.sendall(data)
        _close(source)
        _close(to)


def _close(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)  # wakes who is blocked on it, as close alone does not
    end.close()


@contextmanager
def cable(url: str) -> Iterator[tuple[Cable, str]]:
    """Lend a cable to the server at *url*, and the URL by way of it."""
    parts = urlsplit(url)
    made = Cable(parts.hostname or LOOPBACK, parts.port or 0)
    login = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
    try:
        yield made, parts._replace(netloc=f"{login}{LOOPBACK}:{made.port}").geturl()
    finally:
        made.close()
