"""Retry budgets on Redis, one for a whole fleet (spec D3).

A first attempt costs no round trip, a retry one at most. What was counted and given back rides on
the next retry that asks, or is told at the next turn of the line. A process that was refused a
moment ago refuses by itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from threading import Lock
from typing import Final

from angzarr.adapters.redis.flow_line import FlowLine, flow_key, moment
from angzarr.adapters.redis.link import Script
from angzarr.resilience import budget as rules
from angzarr.resilience.budget import BudgetSettings, Spent

_SCRIPT: Final = Script("budget.lua")
_DEFAULTS: Final = BudgetSettings()
_MS: Final = timedelta(milliseconds=1)
#: A budget that was spent is spent for so long, as far as this process is concerned.
SPENT_FOR: Final = timedelta(milliseconds=100)


@dataclass(slots=True)
class _Report:
    """What a process has to tell of one budget."""

    firsts: int = 0
    waited: int = 0
    returned: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _KnownBudget:
    """A budget that is spent, and the line before it."""

    until: datetime
    line: rules.RetryLine


class RedisBudgets:
    """Fulfils `Budgets`, safe to use from many threads.

    *settings* by name, else *default*; *line* is shared with others who use it. What cannot be
    told is lost: a budget is the smaller for it, until its window has passed.
    """

    def __init__(
        self,
        line: FlowLine,
        settings: Mapping[str, BudgetSettings] | None = None,
        default: BudgetSettings = _DEFAULTS,
    ) -> None:
        self._line = line
        self._settings = dict(settings or {})
        self._default = default
        self._reports: dict[str, _Report] = {}
        self._spent: dict[str, _KnownBudget] = {}
        self._lock = Lock()
        line.each_turn(self._tell)

    def first(self, names: Sequence[str], /) -> None:
        """Count a first attempt, unless the store is away: reported later it would count as new."""
        if self._line.away:
            return
        with self._lock:
            for name in self._enabled(names):
                self._report_of(name).firsts += 1

    def retry(self, names: Sequence[str], token: str, /) -> Spent | None:
        """Take a token from each budget, or from none."""
        asked = self._enabled(names)
        if not asked:
            return None
        self._line.start()
        return self._known(asked) or self._line.ask(partial(self._ask, asked, token), None)

    def returned(self, names: Sequence[str], token: str, /) -> None:
        """Give back what *token* took; the next report includes it."""
        if self._line.away:
            return
        with self._lock:
            for name in self._enabled(names):
                self._report_of(name).returned.append(token)
                self._spent.pop(name, None)

    def _report_of(self, name: str) -> _Report:
        self._line.start()
        return self._reports.setdefault(name, _Report())

    def _known(self, names: Sequence[str]) -> Spent | None:
        now = self._line.now()
        with self._lock:
            for name in names:
                known = self._spent.get(name)
                if known is not None and now < known.until:
                    line, wait = rules.refused(known.line, now, self._of(name))
                    self._report_of(name).waited += line is not known.line
                    known.line = line
                    return Spent(name, wait)
        return None

    def _ask(self, names: Sequence[str], token: str) -> Spent | None:
        now, lines = self._run(names, token)
        spent = []
        with self._lock:
            for name, line in lines.items():
                after, wait = rules.refused(line, now, self._of(name))
                self._spent[name] = _KnownBudget(now + SPENT_FOR, after)
                spent.append(Spent(name, wait))
        return max(spent, key=lambda one: one.wait.by(1.0), default=None)

    def _tell(self) -> None:
        names = list(self._reports)
        if names:
            self._run(names, "")

    def _run(self, names: Sequence[str], token: str) -> tuple[datetime, dict[str, rules.RetryLine]]:
        """Run the script; returns the store's time and the lines of the budgets that are spent."""
        with self._lock:
            reports = [self._reports.pop(name, _Report()) for name in names]
        keys = [flow_key(self._line.prefix, kind, name) for name in names for kind in _KINDS]
        told = (self._told(name, report) for name, report in zip(names, reports, strict=True))
        milliseconds, spent = self._line.client.run(_SCRIPT, keys, token, *told)
        self._line.told_time(milliseconds)
        lines = {
            names[number - 1]: rules.RetryLine(moment(float(place)), float(pace) * _MS)
            for number, place, pace in spent
        }
        return moment(milliseconds), lines

    def _told(self, name: str, report: _Report) -> str:
        settings = self._of(name)
        return json.dumps(
            {
                "share": settings.share,
                "least": settings.least,
                "window": settings.window // _MS,
                "firsts": report.firsts,
                "waited": report.waited,
                "returned": report.returned,
            }
        )

    def _enabled(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if self._of(name).enabled]

    def _of(self, name: str) -> BudgetSettings:
        return self._settings.get(name, self._default)


_KINDS: Final = ("budget", "retries")
