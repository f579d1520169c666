"""The fleet of one process: for tests and for apps whose claims are in memory."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from angzarr.adapters.memory.idempotency import MemoryOwnerLeases
from angzarr.clock import Clock, SystemClock
from angzarr.fleet import RELEASE_LIFE, SAID_LIFE, FleetRelease, Member


class MemoryFleet:
    """The members that have one of *leases*; safe to use from many threads."""

    def __init__(
        self,
        leases: MemoryOwnerLeases,
        *,
        life: timedelta = RELEASE_LIFE,
        said_life: timedelta = SAID_LIFE,
        clock: Clock | None = None,
    ) -> None:
        self._leases = leases
        self._life = life
        self._said_life = said_life
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._said: dict[str, tuple[Member, datetime]] = {}
        self._releases: dict[str, FleetRelease] = {}

    def register(self, member: Member, /) -> None:
        """Keep what *member* says, and see its release."""
        now = self._clock.now()
        with self._lock:
            self._forget(now)
            self._said[member.owner] = (member, now)
            if member.release:
                new = FleetRelease(name=member.release, first_seen_at=now, last_seen_at=now)
                known = self._releases.get(member.release, new)
                self._releases[member.release] = replace(known, last_seen_at=now)

    def members(self) -> Sequence[Member]:
        """Return all whose lease runs, by owner."""
        with self._lock:
            found = [member for member, _ in self._said.values()]
        living = (member for member in found if self._leases.alive(member.owner))
        return sorted(living, key=lambda member: member.owner)

    def releases(self) -> Sequence[FleetRelease]:
        """Return all releases, in the order in which they were first seen."""
        with self._lock:
            return sorted(self._releases.values(), key=lambda one: (one.first_seen_at, one.name))

    def _forget(self, now: datetime) -> None:
        for owner in [one for one, (_, at) in self._said.items() if at <= now - self._said_life]:
            del self._said[owner]
        old = [one for one in self._releases.values() if one.last_seen_at <= now - self._life]
        for release in old:
            del self._releases[release.name]
