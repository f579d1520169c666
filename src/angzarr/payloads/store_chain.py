"""StoreChain: several payload stores, of which each fetches what lies in it."""

from __future__ import annotations

from collections.abc import Sequence

from angzarr.errors import PayloadElsewhere
from angzarr.payloads.store import PayloadReference, PayloadStore


class StoreChain:
    """A payload store: puts into the first of *stores*, fetches from the one that has the place."""

    def __init__(self, stores: Sequence[PayloadStore]) -> None:
        self._stores = tuple(stores)

    def __str__(self) -> str:
        return " or ".join(map(str, self._stores))

    def put(self, payload: bytes, /) -> PayloadReference:
        """Put a payload (see PayloadStore)."""
        return self._stores[0].put(payload)

    def fetch(self, reference: PayloadReference, /) -> bytes:
        """Return the payload (see PayloadStore), from the store that *reference* leads into."""
        *others, last = self._stores
        for store in others:
            try:
                return store.fetch(reference)
            except PayloadElsewhere:
                continue
        return last.fetch(reference)

    def close(self) -> None:
        """Close all of them."""
        for store in self._stores:
            store.close()
