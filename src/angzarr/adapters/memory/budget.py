"""Retry budgets of one process: each worker process has its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from threading import Lock

from angzarr.clock import Clock, SystemClock
from angzarr.resilience import budget as rules
from angzarr.resilience.budget import BudgetSettings, Spent

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
        oldest = rules.oldest_slice(now, self.settings)
        for number in [number for number in self.firsts if number < oldest]:
            del self.firsts[number]
        for token in list(self.retries):
            if self.retries[token] > now - self.settings.window:
                break
            del self.retries[token]

    def has_one(self, token: str) -> bool:
        """Tell whether there is a token for *token*, or it has one."""
        room = rules.allowed(self.firsts.total(), self.settings) - len(self.retries)
        return token in self.retries or room >= 1

    def refuse(self, name: str, now: datetime) -> Spent:
        """Give who asked a place among those who wait."""
        line = rules.RetryLine(self.line, rules.pace(self.firsts.total(), self.settings))
        line, wait = rules.refused(line, now, self.settings)
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
                number = rules.slice_of(now, budget.settings)
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
                    budget.line -= rules.pace(budget.firsts.total(), budget.settings)

    def _of(self, names: Sequence[str], now: datetime) -> list[tuple[str, _Budget]]:
        found = []
        for name in names:
            settings = self._settings.get(name, self._default)
            if settings.enabled:
                found.append((name, self._budgets.setdefault(name, _Budget(settings, now))))
        return found
