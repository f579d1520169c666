"""Payloads in this process, for tests."""

from __future__ import annotations

from angzarr.clock import Clock, SystemClock
from angzarr.errors import PayloadGone
from angzarr.payloads.store import PayloadReference, StorageKind, check_place, sha256_of, verified


class MemoryPayloadStore:
    """Payloads in a dict, under ``memory:<sha256>``; what is in `payloads` is what there is."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self.payloads: dict[str, bytes] = {}

    def __str__(self) -> str:
        return "memory:"

    def put(self, payload: bytes, /) -> PayloadReference:
        """Keep *payload* (see PayloadStore)."""
        sha256 = sha256_of(payload)
        self.payloads[sha256] = payload
        return PayloadReference(
            kind=StorageKind.UNSPECIFIED,
            uri=f"memory:{sha256}",
            sha256=sha256,
            size=len(payload),
            stored_at=self._clock.now(),
        )

    def fetch(self, reference: PayloadReference, /) -> bytes:
        """Return the payload (see PayloadStore)."""
        check_place(reference, f"memory:{reference.sha256}", self)
        found = self.payloads.get(reference.sha256)
        if found is None:
            msg = f"the payload at {reference} is gone"
            raise PayloadGone(msg)
        return verified(reference, found)

    def close(self) -> None:
        """Do nothing."""
