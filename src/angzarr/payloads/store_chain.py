"""StoreChain: several payload stores, of which each fetches what lies in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from angzarr.errors import PayloadElsewhere
from angzarr.payloads.store import FoundPayload, Namer, PayloadReference, PayloadStore


class StoreChain:
    """A payload store: puts into the first of *stores*, fetches from the one that has the place."""

    def __init__(self, stores: Sequence[PayloadStore]) -> None:
        self._stores = tuple(stores)

    def __str__(self) -> str:
        return " or ".join(map(str, self._stores))

    def put(self, payload: bytes, /, name: Namer | None = None) -> PayloadReference:
        """Put a payload (see PayloadStore)."""
        return self._stores[0].put(payload, name)

    def fetch(self, reference: PayloadReference, /) -> bytes:
        """Return the payload (see PayloadStore), from the store that *reference* leads into."""
        *others, last = self._stores
        for store in others:
            try:
                return store.fetch(reference)
            except PayloadElsewhere:
                continue
        return last.fetch(reference)

    def is_here(self, uri: str, /) -> bool:
        """True if *uri* is a place of one of them (see PayloadStore)."""
        return any(store.is_here(uri) for store in self._stores)

    def delete(self, uri: str, /) -> None:
        """Delete the payload at *uri* (see PayloadStore), from the store that it lies in."""
        at = next((store for store in self._stores if store.is_here(uri)), self._stores[-1])
        at.delete(uri)

    def find_all(self) -> Iterator[FoundPayload]:
        """Yield all payloads of all of them (see PayloadStore)."""
        return chain.from_iterable(store.find_all() for store in self._stores)

    def close(self) -> None:
        """Close all of them."""
        for store in self._stores:
            store.close()
