"""What one process last heard of the breakers that it uses, for as long as it uses them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from threading import Lock
from typing import Final

from angzarr.resilience.breaker import BreakerState, Permit, Phase

#: Seconds after which a name that was not used is forgotten, or after twice as many.
IDLE: Final = 1800.0


class Seen:
    """Safe to use from many threads. It is asked in memory and knows no store."""

    def __init__(self) -> None:
        #: Permits of those that are closed and not ramping up: nearly all.
        self.permits: dict[str, Permit] = {}
        self._states: dict[str, BreakerState] = {}
        self._heard_at: dict[str, float] = {}
        #: Names that were used since `_swept_at`.
        self._used: set[str] = set()
        self._swept_at = time.monotonic()
        self._lock = Lock()

    def state(self, name: str) -> BreakerState | None:
        """Return what was last heard of *name*."""
        return self._states.get(name)

    def names(self) -> list[str]:
        """Return the names of which something was heard."""
        return list(self._states)

    def phases(self) -> Mapping[str, Phase]:
        """Return where each of them stands."""
        return {name: state.phase for name, state in self._states.copy().items()}

    def take_in(self, name: str, state: BreakerState, asked_at: float) -> None:
        """Note *state*, an answer to what was asked at *asked_at* (of `time.monotonic`)."""
        with self._lock:
            known = self._states.get(name)
            if known is not None and known.era > state.era and asked_at < self._heard_at[name]:
                return  # an answer that was overtaken by a later one; else the store was emptied
            self._states[name], self._heard_at[name] = state, time.monotonic()
            if state.phase is Phase.CLOSED and state.ramp_from is None:
                self.permits[name] = Permit(name, state.era)
            else:
                self.permits.pop(name, None)

    def end_ramp_up(self, name: str, seen: BreakerState) -> None:
        """Note that a ramp-up is over, unless it was heard meanwhile that all is different."""
        with self._lock:
            if self._states.get(name) is seen:
                self._states[name] = replace(seen, ramp_from=None)
                self.permits[name] = Permit(name, seen.era)

    def use(self, names: Iterable[str]) -> None:
        """Note that *names* are used."""
        self._used.update(names)

    def sweep(self, refuses: Callable[[str, BreakerState], bool]) -> None:
        """Forget what was not used for long, but for what *refuses* calls.

        Names come from data, such as tenants; one that is used again is asked for again.
        """
        if time.monotonic() < self._swept_at + IDLE:
            return
        with self._lock:
            for name in self._states.keys() - self._used:
                if not refuses(name, self._states[name]):
                    del self._states[name], self._heard_at[name]
                    self.permits.pop(name, None)
        self._used.clear()
        self._swept_at = time.monotonic()
