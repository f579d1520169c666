"""Target phases: how the breakers stand around the handlers that a replay job calls."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from angzarr.cli.application import Application
from angzarr.clock import Clock
from angzarr.delivery.wave import breaker_of
from angzarr.errors import ConfigurationError, Unavailable
from angzarr.resilience.breaker import Phase, State

#: How long one look at the breakers is believed.
BELIEVED: Final = timedelta(seconds=1)
#: The worst first.
_ORDER: Final = (Phase.ISOLATED, Phase.OPEN, Phase.HALF_OPEN, Phase.CLOSED)


def phase_of(state: State, now: datetime) -> Phase:
    """Return the phase for who is about to call: an open breaker that may be tried is half-open.

    Where nobody else calls, nobody but the replay itself would find out that the wait is over.
    """
    if state.phase is Phase.OPEN and state.retry_at is not None and state.retry_at <= now:
        return Phase.HALF_OPEN
    return state.phase


def worst(phases: Iterable[Phase]) -> Phase | None:
    """Return the worst of *phases*, None of none."""
    return min(phases, key=_ORDER.index, default=None)


@dataclass(slots=True, kw_only=True)
class TargetPhases:
    """Asks the breakers that the fleet shares, at most once a second; not for several threads."""

    app: Application
    clock: Clock
    monotonic: Callable[[], float] = time.monotonic
    _states: Mapping[str, State] = field(default_factory=dict, init=False)
    _look_again: float = field(default=float("-inf"), init=False)

    def __call__(self, handlers: Sequence[str]) -> Phase | None:
        """Return the worst phase around *handlers*; None: no breaker of theirs is known."""
        names = {name for handler in handlers for name in self._breakers_of(handler)}
        if not names:
            return None
        states, now = self._look(), self.clock.now()
        return worst(phase_of(states[name], now) for name in names if name in states)

    def _breakers_of(self, handler: str) -> list[str]:
        found = self.app.find_handler(handler)
        if found is None:
            return []
        wave = [breaker_of(found.domain)] if found.domain else []
        return [*(guard.name for guard in found.breakers), *wave]

    def _look(self) -> Mapping[str, State]:
        """Return all states; where none are shared, or their store is away, none is known."""
        if self.monotonic() >= self._look_again:
            try:
                self._states = self.app.breaker_controls().states()
            except (ConfigurationError, Unavailable):
                self._states = {}
            self._look_again = self.monotonic() + BELIEVED.total_seconds()
        return self._states
