"""Payloads in this process, for tests."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from angzarr.clock import Clock, SystemClock
from angzarr.errors import PayloadGone
from angzarr.payloads.store import (
    FoundPayload,
    Namer,
    PayloadReference,
    StorageKind,
    is_below,
    name_in,
    name_of,
    new_name,
    sha256_in,
    verified,
)


class MemoryPayloadStore:
    """Payloads in a dict, by their names; what is in `payloads` is what there is."""

    #: What the URIs of its payloads begin with.
    root = "memory:/"

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self.payloads: dict[str, bytes] = {}
        self._put_at: dict[str, datetime] = {}

    def __str__(self) -> str:
        return self.root

    def put(self, payload: bytes, /, name: Namer | None = None) -> PayloadReference:
        """Keep *payload* (see PayloadStore)."""
        chosen = new_name(payload, self.root, name, self)
        self.payloads[chosen] = payload
        self._put_at[chosen] = self._clock.now()
        return PayloadReference(
            kind=StorageKind.UNSPECIFIED,
            uri=self.root + chosen,
            sha256=sha256_in(chosen),
            size=len(payload),
            stored_at=self._clock.now(),
        )

    def fetch(self, reference: PayloadReference, /) -> bytes:
        """Return the payload (see PayloadStore)."""
        found = self.payloads.get(name_of(reference, self.root, self))
        if found is None:
            msg = f"the payload at {reference} is gone"
            raise PayloadGone(msg)
        return verified(reference, found)

    def is_here(self, uri: str, /) -> bool:
        """True if *uri* is a place of this store (see PayloadStore)."""
        return is_below(uri, self.root)

    def delete(self, uri: str, /) -> None:
        """Forget the payload (see PayloadStore)."""
        self.payloads.pop(name_in(uri, self.root, self), None)

    def find_all(self) -> Iterator[FoundPayload]:
        """Yield all payloads (see PayloadStore)."""
        for name, payload in list(self.payloads.items()):
            yield FoundPayload(self.root + name, len(payload), self._put_at.get(name))

    def close(self) -> None:
        """Do nothing."""
