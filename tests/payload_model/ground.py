"""Ground: where the bodies, holds and entries of a world are: in memory, or on real servers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from angzarr.adapters.memory.payload_holders import MemoryPayloadHolders
from angzarr.clock import Clock
from angzarr.payloads.store import Namer, PayloadReference
from memory_payloads import MemoryPayloadStore
from payload_model.parts import Ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """The parts of a world that outlive its processes, but for its queues and claims."""

    #: A `PayloadHolders` and a `PayloadRegister`.
    holders: Any
    bodies: Any
    #: What `parts.Ledger` is; `released` are the holds that are to end.
    ledger: Any
    released: Any
    #: Lets time pass for the register.
    age: Callable[[timedelta], object] = lambda _span: None


def in_memory(clock: Clock) -> Ground:
    """All in this process."""
    holders, ledger = MemoryPayloadHolders(clock), Ledger()
    return Ground(
        holders=holders,
        bodies=MemoryPayloadStore(clock),
        ledger=ledger,
        released=ledger,
    )


class KnownBodies:
    """A payload store, *inner*, that knows what was put there and not deleted; it asks nothing."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.known: set[str] = set()

    def __str__(self) -> str:
        return str(self._inner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def put(self, payload: bytes, name: Namer | None = None) -> PayloadReference:
        reference: PayloadReference = self._inner.put(payload, name)
        self.known.add(reference.uri)
        return reference

    def delete(self, uri: str) -> None:
        self._inner.delete(uri)
        self.known.discard(uri)
