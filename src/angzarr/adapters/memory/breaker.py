"""Breakers of one process: each worker process finds out for itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from threading import Lock

from angzarr.clock import Clock, SystemClock
from angzarr.resilience import breaker_rules as rules
from angzarr.resilience.breaker import (
    Barred,
    BreakerRefusal,
    BreakerSettings,
    BreakerState,
    BreakerWatch,
    Permit,
    Phase,
    Transition,
    Watches,
    settings_of,
)
from angzarr.runtime.failures import LogThrottle

_DEFAULTS = BreakerSettings()
_NEW = BreakerState()
#: A breaker that was not used for so long, and has nothing to say, is forgotten.
_IDLE = timedelta(hours=1)
#: Transitions that are remembered.
_REMEMBERED = 1000


class InProcessBreakers:
    """Fulfils `Breakers` and `BreakerControls`, safe to use from many threads.

    *settings* by name, else *default*; *watch* receives transitions and refusals.
    """

    def __init__(
        self,
        settings: Mapping[str, BreakerSettings] | None = None,
        default: BreakerSettings = _DEFAULTS,
        watch: BreakerWatch | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._settings = dict(settings or {})
        self._default = default
        self._watch = watch or Watches()
        self._seldom = LogThrottle()
        self._clock = clock or SystemClock()
        self._states: dict[str, BreakerState] = {}
        self._history: deque[Transition] = deque(maxlen=_REMEMBERED)
        self._lock = Lock()
        self._swept_at = self._clock.now()

    def admit(self, name: str, token: str, whose: str = "", /) -> Permit | Barred:
        """Ask to make a call."""
        now, settings = self._clock.now(), self._of(name)
        with self._lock:
            before = self._states.get(name, _NEW)
            state, answer = rules.admit(before, name, token, now, settings, whose)
            self._states[name] = state
            if now >= self._swept_at + _IDLE:
                self._sweep(now)
            told = answer if isinstance(answer, Barred) and self._seldom.now(name) else None
        self._tell(name, before, state)
        if told is not None:
            self._watch.refused(BreakerRefusal(name, state.phase, told.retry_after, now))
        return answer

    def record(self, permit: Permit, /, *, ok: bool, took: timedelta) -> None:
        """Note how the call of *permit* ended."""
        now, settings = self._clock.now(), self._of(permit.name)
        slow = settings.is_slow(took)
        if permit.probe:
            self._change(
                permit.name,
                lambda state: rules.probed(state, permit.probe, now, settings, ok=ok and not slow),
            )
            return
        batch = rules.CallBatch().with_call(ok=ok, slow=slow)
        self._change(
            permit.name, lambda state: rules.report(state, permit.era, batch, now, settings)
        )

    def forgo(self, permit: Permit, /) -> None:
        """Give a probe back."""
        if permit.probe:
            self._change(permit.name, lambda state: rules.forgone(state, permit.probe))

    def known(self, name: str, /) -> Permit | Barred | None:
        """The answer that is certain at this moment."""
        state = self._states.get(name, _NEW)
        return rules.known(state, name, self._clock.now(), self._of(name))

    def refuses(self, name: str, /) -> bool:
        """True if no new call would be let through."""
        state = self._states.get(name, _NEW)
        return rules.refuses(state, name, self._clock.now(), self._of(name))

    def phases(self) -> Mapping[str, Phase]:
        """The phase of each breaker that this process uses."""
        return {name: state.phase for name, state in self._states.copy().items()}

    def isolate(self, name: str, /, *, by: str) -> None:
        """Hold the breaker open until it is reset."""
        self._change(name, lambda state: rules.isolated(state, self._clock.now()), by)

    def reset(self, name: str, /, *, by: str) -> None:
        """Close the breaker and forget what it saw."""
        settings = self._of(name)
        self._change(name, lambda state: rules.reset(state, self._clock.now(), settings), by)

    def states(self) -> Mapping[str, BreakerState]:
        """Every breaker that is known, by name."""
        with self._lock:
            return {**dict.fromkeys(self._settings, _NEW), **self._states}

    def history(self, limit: int) -> Sequence[Transition]:
        """The last *limit* transitions of all breakers, oldest first."""
        return list(self._history)[-limit:]

    def _change(
        self, name: str, rule: Callable[[BreakerState], BreakerState], by: str = ""
    ) -> None:
        with self._lock:
            before = self._states.get(name, _NEW)
            self._states[name] = after = rule(before)
        self._tell(name, before, after, by)

    def _tell(self, name: str, before: BreakerState, after: BreakerState, by: str = "") -> None:
        change = rules.transition(name, before.phase, after, by)
        if change is not None:
            self._history.append(change)
            self._watch.changed(change)

    def _sweep(self, now: datetime) -> None:
        """Forget those that are as good as new: names come from data, such as tenants."""
        for name, state in list(self._states.items()):
            settings = self._of(name)
            last = max((tally.began_at for tally in state.tallies), default=state.changed_at)
            idle = last is None or now >= last + max(_IDLE, settings.window)
            if idle and isinstance(rules.known(state, name, now, settings), Permit):
                del self._states[name]
        self._swept_at = now

    def _of(self, name: str) -> BreakerSettings:
        return settings_of(name, self._settings, self._default)
