"""A brake in this process: for tests."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import datetime

from angzarr.analysis.ledger.emergency_stop import Brake, BrakeState, Scope, moved, standing
from angzarr.clock import Clock, SystemClock


class MemoryBrake(Brake):
    """All its states in a list, which is only ever added to."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._states = [BrakeState()]
        self._lock = threading.Lock()

    def state(self) -> BrakeState:
        """Return how it stands."""
        return standing(reversed(self._states))

    def put(
        self,
        scope: Scope,
        *,
        by: str,
        why: str = "",
        until: datetime | None = None,
        seen: int | None = None,
    ) -> BrakeState:
        """Pull or release it."""
        now = self._clock.now()
        asked = BrakeState(scope=scope, by=by, why=why, at=now, until=until)
        with self._lock:
            before = self._states[-1]
            state = replace(moved(before, asked, now, seen), revision=before.revision + 1)
            self._states.append(state)
            return self.state()

    def brake_history(self, limit: int) -> tuple[BrakeState, ...]:
        """Return how it stood."""
        return tuple(self._states[1:][-limit:])

    def close(self) -> None:
        """Keep everything: there is nothing to let go."""
