"""The register of bodies of one process, for tests and for the memory broker (spec F4)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from angzarr.clock import Clock, SystemClock
from angzarr.payloads.collector import BATCH, PayloadCount, PayloadState, RegisteredPayload
from angzarr.payloads.holders import PayloadHold, address_of


@dataclass(slots=True)
class _Registered:
    size: int
    state: PayloadState
    since: datetime
    holders: set[str] = field(default_factory=set)


class MemoryPayloadHolders:
    """Fulfils `PayloadHolders` and `PayloadRegister`; safe to use from many threads."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._by_uri: dict[str, _Registered] = {}
        #: The URI that each address has now.
        self._current: dict[str, str] = {}

    def hold(self, address: str, size: int, holder: str, /, *, fresh: str) -> str:
        """Register *holder*, and return the URI to put the body at."""
        with self._lock:
            uri = self._current.setdefault(address, fresh)
            if uri not in self._by_uri:
                self._by_uri[uri] = _Registered(size, PayloadState.HELD, self._clock.now())
            self._add(uri, holder)
            return uri

    def join(self, holds: Sequence[PayloadHold], /) -> list[bool]:
        """Register *holds* of bodies that are registered."""
        with self._lock:
            return [self._join(*hold) for hold in holds]

    def release(self, holds: Sequence[PayloadHold], /) -> None:
        """End *holds*."""
        with self._lock:
            for uri, holder in holds:
                found = self._by_uri.get(uri)
                if found is not None and holder in found.holders:
                    found.holders.remove(holder)
                    if not found.holders:
                        found.state, found.since = PayloadState.FREE, self._clock.now()

    def find(
        self, state: PayloadState, longer_than: timedelta, /, *, limit: int, skip: int = 0
    ) -> list[RegisteredPayload]:
        """Bodies in *state*, the longest first."""
        with self._lock:
            now = self._clock.now()
            there = [one for one in self._by_uri.items() if one[1].state is state]
        found = [
            RegisteredPayload(
                uri,
                one.size,
                state,
                now - one.since,
                len(one.holders),
                min(one.holders, default=""),
            )
            for uri, one in sorted(there, key=lambda each: (each[1].since, each[0]))
            if now - one.since >= longer_than
        ]
        return found[skip : skip + limit]

    def condemn(
        self, uris: Sequence[str], state: PayloadState, longer_than: timedelta, /
    ) -> list[str]:
        """Condemn those that still are in *state*."""
        with self._lock:
            return [uri for uri in uris if self._is_condemned(uri, state, longer_than)]

    def forget(self, uris: Sequence[str], /) -> None:
        """Forget condemned bodies."""
        with self._lock:
            for uri in uris:
                found = self._by_uri.get(uri)
                if found is not None and found.state is PayloadState.CONDEMNED:
                    del self._by_uri[uri]

    def known(self, uris: Sequence[str], /) -> set[str]:
        """Those of *uris* that are registered."""
        with self._lock:
            return {uri for uri in uris if uri in self._by_uri}

    def holders_of(self, uri: str, /, *, limit: int = BATCH) -> set[str]:
        """Those who hold the body at *uri*."""
        with self._lock:
            found = self._by_uri.get(uri)
            return set() if found is None else set(sorted(found.holders)[:limit])

    def count(self) -> dict[PayloadState, PayloadCount]:
        """How many bodies are in each state."""
        with self._lock:
            there = [(one.state, one.size) for one in self._by_uri.values()]
        sizes = {state: [size for at, size in there if at is state] for state in PayloadState}
        return {state: PayloadCount(len(found), sum(found)) for state, found in sizes.items()}

    def _join(self, uri: str, holder: str) -> bool:
        found = self._by_uri.get(uri)
        if found is None or found.state is PayloadState.CONDEMNED:
            return False
        self._add(uri, holder)
        return True

    def _add(self, uri: str, holder: str) -> None:
        found = self._by_uri[uri]
        found.holders.add(holder)
        found.state, found.since = PayloadState.HELD, self._clock.now()

    def _is_condemned(self, uri: str, state: PayloadState, longer_than: timedelta) -> bool:
        """True if *uri* is condemned now."""
        now, found = self._clock.now(), self._by_uri.get(uri)
        if found is None or found.state is not state or now - found.since < longer_than:
            return False
        if state is not PayloadState.CONDEMNED:
            found.state, found.since = PayloadState.CONDEMNED, now
            found.holders.clear()
            if self._current.get(address := address_of(uri)) == uri:
                del self._current[address]
        return True


#: That of this process, for all who name a store in memory.
SHARED: Final = MemoryPayloadHolders()
