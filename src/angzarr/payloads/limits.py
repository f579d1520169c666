"""Openings: payloads for people at a door: none too large, and few at once. Workers have no bound.

A payload that was fetched is read, compared and shown: so much memory at a time it may take.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from angzarr.errors import PayloadsBusy, PayloadTooLarge
from angzarr.payloads.store import PayloadReference, PayloadStore

#: Requests of one process that have payloads in hand.
AT_ONCE: Final = 4


class _Turn:
    """One request; it holds a place from its first payload until it is over."""

    def __init__(self) -> None:
        self._places: threading.Semaphore | None = None

    def take(self, places: threading.Semaphore) -> None:
        if self._places is places:
            return
        if not places.acquire(blocking=False):
            msg = "too many payloads are open here at once: ask again in some seconds"
            raise PayloadsBusy(msg)
        self._places = places

    def end(self) -> None:
        if self._places is not None:
            self._places.release()
            self._places = None


_turn: ContextVar[_Turn | None] = ContextVar("_turn", default=None)


@contextmanager
def turn() -> Iterator[None]:
    """Count all payloads that are opened in the block, in its threads too, as one at a time."""
    mine = _Turn()
    before = _turn.set(mine)
    try:
        yield
    finally:
        _turn.reset(before)
        mine.end()


class PayloadReadLimit:
    """A payload store for people: *store*, with payloads of *most* bytes at most."""

    def __init__(self, store: PayloadStore, most: int, at_once: int = AT_ONCE) -> None:
        self._store = store
        self._most = most
        self._places = threading.Semaphore(at_once)

    def __str__(self) -> str:
        return str(self._store)

    def put(self, payload: bytes, /) -> PayloadReference:
        """Put a payload (see PayloadStore)."""
        return self._store.put(payload)

    def fetch(self, reference: PayloadReference, /) -> bytes:
        """Return the payload (see PayloadStore); what its reference says of its size is checked.

        Raises PayloadTooLarge, whose caller says who takes it all the same, and PayloadsBusy where
        so many requests have payloads in hand.
        """
        if reference.size > self._most:
            msg = (
                f"its body lies at {reference}, and no more than {self._most} bytes are opened for"
                " people (dlq.payloads.largest_opened)"
            )
            raise PayloadTooLarge(msg)
        if (request := _turn.get()) is not None:
            request.take(self._places)
            return self._store.fetch(reference)
        with turn():
            return self.fetch(reference)

    def close(self) -> None:
        """Close the store."""
        self._store.close()
