"""Limits of one process: each worker process counts for itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock

from angzarr.clock import Clock, SystemClock
from angzarr.resilience import limit as rules
from angzarr.resilience.limit import Exceeded, Limit, LimitScope

#: Scopes that are kept before those are forgotten that say nothing any more.
_MANY = 1000


@dataclass(slots=True)
class _Meter:
    gauge: rules.Gauge = rules.NEW
    #: Who holds a slot, and since when.
    slots: dict[str, float] = field(default_factory=dict)

    def says_nothing(self, now: float) -> bool:
        """Tell whether a new meter would say the same."""
        due, line, queue, _ = self.gauge
        return not self.slots and max(due, line, queue) <= now

    def refuse(self, limit: Limit, token: str, now: float) -> list[Exceeded]:
        """Return what *token* must wait for, with a place in each line."""
        refused = []
        if rules.early(limit, self.gauge, now) > 0:
            self.gauge, wait = rules.wait_for_rate(limit, self.gauge, now)
            refused.append(Exceeded(limit.name, wait))
        most = limit.concurrency
        if most is not None and token not in self.slots and len(self.slots) >= most:
            self.gauge, wait = rules.wait_for_slot(limit, self.gauge, now)
            refused.append(Exceeded(limit.name, wait))
        return refused

    def let_through(self, limit: Limit, token: str, now: float) -> None:
        self.gauge = rules.called(limit, self.gauge, now)
        if limit.concurrency is not None:
            self.slots.setdefault(token, now)


class InProcessLimits:
    """Fulfils `Limits`, safe to use from many threads. Slots have no lease: their owner is here."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._meters: dict[tuple[str, str], _Meter] = {}
        self._many = _MANY
        self._lock = Lock()

    def take(self, scopes: Sequence[LimitScope], token: str, /) -> Exceeded | None:
        """Let *token* call within each scope, or take nothing."""
        now = self._clock.now().timestamp()
        with self._lock:
            asked = [(limit, self._meter(limit.name, key, now)) for limit, key in scopes]
            refused = [one for limit, meter in asked for one in meter.refuse(limit, token, now)]
            if refused:
                return max(refused, key=lambda one: one.wait.by(1.0))
            for limit, meter in asked:
                meter.let_through(limit, token, now)
        return None

    def release(self, scopes: Sequence[LimitScope], token: str, /) -> None:
        """Free what *token* holds."""
        now = self._clock.now().timestamp()
        with self._lock:
            for limit, key in scopes:
                meter = self._meter(limit.name, key, now)
                since = meter.slots.pop(token, None)
                if since is not None:
                    meter.gauge = rules.released(meter.gauge, now - since)

    def _meter(self, name: str, key: str, now: float) -> _Meter:
        meter = self._meters.get((name, key))
        if meter is None:
            if len(self._meters) >= self._many:
                self._forget(now)
            meter = self._meters[name, key] = _Meter()
        return meter

    def _forget(self, now: float) -> None:
        """Keep the scopes that say something; a tenth of the calls or fewer come here."""
        kept = {at: meter for at, meter in self._meters.items() if not meter.says_nothing(now)}
        self._meters = kept
        self._many = max(_MANY, 2 * len(kept))
