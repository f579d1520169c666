"""A dependency: an HTTP server that writes every call down before it answers.

`python -m workers.dependency JOURNAL` prints its port. Each line that it reads is what it is from
then on: `well` (200 after 5 ms), `sick` (503 after 50 ms) or `mute` (no answer until it is well).
It prints the moment (s, monotonic) at which that began, and ends when its input does.
"""

from __future__ import annotations

import asyncio
import sys
import time

from workers.journal import Journal

LOOPBACK = "127.0.0.1"
#: How long it takes to answer (s), and with what.
ANSWERS = {"well": (0.005, b"200 OK"), "sick": (0.05, b"503 Service Unavailable")}


class Health:
    """What it is now, and who waits until it is well."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self._now = "well"
        self._waiting: list[Line] = []

    def turn(self, to: str) -> None:
        """Be *to* from now on; what was mute answers once it is not."""
        self._now = to
        if to in ANSWERS:
            waiting, self._waiting = self._waiting, []
            for line in waiting:
                self.called(line)

    def called(self, line: Line) -> None:
        """Answer in time."""
        if self._now not in ANSWERS:
            self._waiting.append(line)
            return
        after, status = ANSWERS[self._now]
        asyncio.get_running_loop().call_later(after, line.answer, status)


class Line(asyncio.Protocol):
    """One connection, which has one call at a time: `GET /<number>`."""

    def __init__(self, health: Health) -> None:
        self._health = health
        self._read = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._read += data
        if self._read.endswith(b"\r\n\r\n"):
            _verb, path, _rest = self._read.split(b" ", 2)
            self._read = b""
            self._health.journal.write(int(path[1:]))
            self._health.called(self)

    def answer(self, status: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\n\r\n")


async def main(journal: str) -> None:
    """Serve until the input ends."""
    loop, health = asyncio.get_running_loop(), Health(Journal(journal))
    server = await loop.create_server(lambda: Line(health), LOOPBACK, 0, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    while said := await asyncio.to_thread(sys.stdin.readline):
        health.turn(said.strip())
        print(time.monotonic(), flush=True)
    server.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
