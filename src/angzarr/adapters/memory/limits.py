"""Limits and retry budgets of one process: each worker process counts for itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from threading import Lock

from angzarr.clock import Clock, SystemClock
from angzarr.resilience import budget as budget_rules
from angzarr.resilience import limit as limit_rules
from angzarr.resilience.budget import BudgetSettings, Spent
from angzarr.resilience.limit import Exceeded, Limit, LimitScope

_DEFAULTS = BudgetSettings()


@dataclass(slots=True)
class _Budget:
    """What is known of one dependency."""

    settings: BudgetSettings
    line: datetime
    firsts: Counter[int] = field(default_factory=Counter)  # by slice
    retries: dict[str, datetime] = field(default_factory=dict)  # by token, oldest first

    def forget(self, now: datetime) -> None:
        """Leave behind what the window has left."""
        oldest = budget_rules.oldest_slice(now, self.settings)
        for number in [number for number in self.firsts if number < oldest]:
            del self.firsts[number]
        for token in list(self.retries):
            if self.retries[token] > now - self.settings.window:
                break
            del self.retries[token]

    def has_one(self, token: str) -> bool:
        """True if there is a token for *token*, or it has one."""
        room = budget_rules.allowed(self.firsts.total(), self.settings) - len(self.retries)
        return token in self.retries or room >= 1

    def refuse(self, name: str, now: datetime) -> Spent:
        """Give who asked a place among those who wait."""
        line = budget_rules.RetryLine(
            self.line, budget_rules.pace(self.firsts.total(), self.settings)
        )
        line, wait = budget_rules.refused(line, now, self.settings)
        self.line = line.place
        return Spent(name, wait)


class InProcessBudgets:
    """Fulfils `Budgets`, safe to use from many threads. *settings* by name, else *default*."""

    def __init__(
        self,
        settings: Mapping[str, BudgetSettings] | None = None,
        default: BudgetSettings = _DEFAULTS,
        clock: Clock | None = None,
    ) -> None:
        self._settings = dict(settings or {})
        self._default = default
        self._clock = clock or SystemClock()
        self._budgets: dict[str, _Budget] = {}
        self._lock = Lock()

    def first(self, names: Sequence[str], /) -> None:
        """Count a first attempt."""
        now = self._clock.now()
        with self._lock:
            for _, budget in self._of(names, now):
                number = budget_rules.slice_of(now, budget.settings)
                if number not in budget.firsts:
                    budget.forget(now)
                budget.firsts[number] += 1

    def retry(self, names: Sequence[str], token: str, /) -> Spent | None:
        """Take a token from each budget, or from none."""
        now = self._clock.now()
        with self._lock:
            asked = self._of(names, now)
            for _, budget in asked:
                budget.forget(now)
            spent = [
                budget.refuse(name, now) for name, budget in asked if not budget.has_one(token)
            ]
            if spent:
                return max(spent, key=lambda one: one.wait.by(1.0))
            for _, budget in asked:
                budget.retries.setdefault(token, now)
        return None

    def returned(self, names: Sequence[str], token: str, /) -> None:
        """Give back what *token* took."""
        now = self._clock.now()
        with self._lock:
            for _, budget in self._of(names, now):
                if budget.retries.pop(token, None) is not None:
                    budget.line -= budget_rules.pace(budget.firsts.total(), budget.settings)

    def _of(self, names: Sequence[str], now: datetime) -> list[tuple[str, _Budget]]:
        found = []
        for name in names:
            settings = self._settings.get(name, self._default)
            if settings.enabled:
                found.append((name, self._budgets.setdefault(name, _Budget(settings, now))))
        return found


#: Scopes that are kept before those are forgotten that say nothing any more.
_MANY = 1000


@dataclass(slots=True)
class _Meter:
    gauge: limit_rules.Gauge = limit_rules.NEW
    #: Who holds a slot, and since when.
    slots: dict[str, float] = field(default_factory=dict)

    def says_nothing(self, now: float) -> bool:
        """True if a new meter would say the same."""
        due, line, queue, _ = self.gauge
        return not self.slots and max(due, line, queue) <= now

    def refuse(self, limit: Limit, token: str, now: float) -> list[Exceeded]:
        """The limits that *token* must wait for, with a place in each line."""
        refused = []
        if limit_rules.early(limit, self.gauge, now) > 0:
            self.gauge, wait = limit_rules.wait_for_rate(limit, self.gauge, now)
            refused.append(Exceeded(limit.name, wait))
        most = limit.concurrency
        if most is not None and token not in self.slots and len(self.slots) >= most:
            self.gauge, wait = limit_rules.wait_for_slot(limit, self.gauge, now)
            refused.append(Exceeded(limit.name, wait))
        return refused

    def let_through(self, limit: Limit, token: str, now: float) -> None:
        self.gauge = limit_rules.called(limit, self.gauge, now)
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
                    meter.gauge = limit_rules.released(meter.gauge, now - since)

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
