"""A proxy before a Kafka broker that damages one Produce request, as a broker's refusal would."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import Self

_PRODUCE = 0  # the request's API key, Kafka's protocol guide
_LOOPBACK = b"127.0.0.1"


class KafkaGateway:
    """Forwards to the broker at *port*, and tells clients that the broker is where this is.

    The first Produce request that holds *mark* is damaged, so the broker refuses it with an error
    that clients retry (CORRUPT_MESSAGE), and answered no sooner than another Produce request has
    followed on its connection, or *wait* seconds have passed.
    """

    def __init__(self, port: int, *, mark: bytes, wait: float = 0.5) -> None:
        self._target = ("127.0.0.1", port)
        self._mark = mark
        self._wait = wait
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._there, self._here = (
            _LOOPBACK + struct.pack(">i", number) for number in (port, self.port)
        )
        self.damaged = threading.Event()
        self._followed = threading.Event()
        self._open: list[socket.socket] = []

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for end in (self._listener, *self._open):
            with contextlib.suppress(OSError):  # wakes the thread that is blocked on it
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                self._open += [client, server]
                held: set[bytes] = set()  # the correlation ids of requests that were damaged
                for pump in (self._requests, self._replies):
                    threading.Thread(target=pump, args=(client, server, held), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket, held: set[bytes]) -> None:
        for frame in _frames(client):
            passed = frame
            if frame[:2] == struct.pack(">h", _PRODUCE):
                if self.damaged.is_set():
                    self._followed.set()
                elif self._mark in frame:
                    passed = frame.replace(self._mark, self._mark[::-1])
                    held.add(frame[4:8])
                    self.damaged.set()
            _send(server, passed)

    def _replies(self, client: socket.socket, server: socket.socket, held: set[bytes]) -> None:
        for frame in _frames(server):
            if frame[:4] in held:
                self._followed.wait(self._wait)
            _send(client, frame.replace(self._there, self._here))


def _frames(end: socket.socket):
    with contextlib.suppress(OSError), end.makefile("rb") as stream:
        while size := stream.read(4):
            yield stream.read(struct.unpack(">i", size)[0])


def _send(end: socket.socket, frame: bytes) -> None:
    with contextlib.suppress(OSError):
        end.sendall(struct.pack(">i", len(frame)) + frame)
