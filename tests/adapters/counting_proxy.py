"""A proxy that counts what a client asks: each message that it sends begins a round trip."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tcp_proxy import LossyProxy


class CountingProxy(LossyProxy):
    """Counts from the beginning; `trips` has what was sent."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port)
        self.trips: list[bytes] = []

    def _loses(self, data: bytes) -> bool:
        self.trips.append(data)
        return super()._loses(data)

    @contextmanager
    def counted(self) -> Iterator[list[bytes]]:
        """Give a list that has, when the block ends, what was sent in it."""
        before = len(self.trips)
        found: list[bytes] = []
        yield found
        found.extend(self.trips[before:])
