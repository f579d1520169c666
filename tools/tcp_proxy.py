"""A TCP proxy that loses replies or the whole cable on purpose."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Self


class LossyProxy:
    """Forwards one port of this machine to *host*:*port* until it is told to lose replies."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._marker = b""
        self._losses = 0
        self._cut = True
        self._down = False
        self._cuts = 0
        self._flow = threading.Event()
        self._flow.set()
        self._open: dict[socket.socket, socket.socket] = {}  # the client's end → the server's
        self._lost: dict[socket.socket, threading.Event] = {}
        self._believed: set[socket.socket] = set()
        self._swallowed: set[socket.socket] = set()
        self._swallows = False

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        # shutdown, not close alone: it wakes the threads that are blocked on these sockets.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._flow.set()
        with self._lock:
            for end in {*self._open, *self._open.values(), *self._believed, *self._swallowed}:
                _close(end)

    def lose_replies(self, marker: bytes, *, times: int = 1, cut: bool = True) -> None:
        """Lose the replies to the next *times* requests that hold *marker*.

        *cut* closes the connection once the server has replied; else the client waits in vain.
        """
        with self._lock:
            self._marker, self._losses, self._cut = marker, times, cut

    def cut(self) -> None:
        """Cut the cable: end every connection, and each new one at once, until `mend`."""
        with self._lock:
            self._down = True
            self._cuts += 1
            for end in {*self._open, *self._open.values()}:
                _close(end)
            self._open.clear()

    def forsake(self) -> None:
        """End every connection for its client; the server, as behind a NAT, hears nothing of it."""
        with self._lock:
            self._believed |= set(self._open.values())
            for client in self._open:
                _close(client)
            self._open.clear()

    def hush(self) -> None:
        """Let nothing more come back on the connections that are there; they stay open."""
        with self._lock:
            self._cut = False
            for client in self._open:
                self._lost[client].set()

    def swallow(self, *, new: bool = False) -> None:
        """Take all that is sent on the connections that are there, and forward nothing any more.

        Each end believes the other to be there, as when a host behind a proxy hangs; not even an
        end that closes is heard of by the other. With *new* the connections to come go the same
        way until `mend`.
        """
        with self._lock:
            self._swallows = new
            self._swallowed |= {*self._open, *self._open.values()}

    def lead_to(self, host: str, port: int, *, cut: bool = True) -> None:
        """Lead to another server from now on, as an address does that moved.

        Without *cut* the connections that are there stay with the server before.
        """
        if cut:
            self.cut()
        self._target = (host, port)
        self.mend()

    def stall(self) -> None:
        """Let nothing through until `mend`, with every connection open and new ones taken."""
        self._flow.clear()

    def mend(self) -> None:
        """Let connections through again, with what was under way."""
        with self._lock:
            self._down = self._swallows = False
        self._flow.set()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                with self._lock:
                    down, cuts = self._down, self._cuts
                if down:
                    _close(client)
                else:
                    self._connect(client, cuts)

    def _connect(self, client: socket.socket, cuts: int) -> None:
        try:
            server = socket.create_connection(self._target)
        except OSError:  # the server is away: so are we, for this client
            _close(client)
            return
        with self._lock:
            if cuts != self._cuts:  # the cable was cut while this one was made
                _close(client)
                _close(server)
                return
            self._open[client] = server
            if self._swallows:
                self._swallowed |= {client, server}
            lost = self._lost[client] = threading.Event()
        for run in (self._requests, self._replies):
            threading.Thread(target=run, args=(client, server, lost), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket, lost: threading.Event):
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                if client in self._swallowed:
                    continue
                if self._loses(data):
                    lost.set()
                self._flow.wait()
                server.sendall(data)
        if server not in self._believed and server not in self._swallowed:
            _close(server)

    def _replies(self, client: socket.socket, server: socket.socket, lost: threading.Event):
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                self._flow.wait()
                if server in self._swallowed:
                    continue
                if not lost.is_set():
                    client.sendall(self._told(data))
                elif self._cut:
                    break
        if client not in self._swallowed:
            _close(client)

    def _told(self, data: bytes) -> bytes:
        """Return what the client gets of a reply, of the same length."""
        return data

    def _loses(self, data: bytes) -> bool:
        with self._lock:
            if self._losses <= 0 or self._marker not in data:
                return False
            self._losses -= 1
            return True


def _close(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()


def unused_port() -> int:
    """Return a port nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
