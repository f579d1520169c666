"""Crowds before budgets and limits: they neither storm nor starve."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from datetime import timedelta

import pytest

from angzarr.adapters.memory.limits import InProcessBudgets, InProcessLimits
from angzarr.resilience import limit as limit_rules
from angzarr.resilience.budget import BudgetSettings
from angzarr.resilience.limit import Limit, LimitScope
from hand_clock import START, HandClock


class Crowd:
    """Many who ask, wait as they are told, ask again, and work; on a clock of their own."""

    def __init__(self, size, come_within=0.0):
        self.clock, self.chance = HandClock(), random.Random(1)
        self.asks = Counter()  # by second
        self.ended_at = 0.0
        self._due = [
            (self.chance.random() * come_within, n, f"{n}", self._ask) for n in range(size)
        ]
        heapq.heapify(self._due)

    def run(self):
        while self._due:
            at, n, token, step = heapq.heappop(self._due)
            self.clock.time = START + timedelta(seconds=at)
            step(at, n, token)

    def later(self, at, n, token, step):
        heapq.heappush(self._due, (at, n, token, step))

    def _ask(self, at, n, token):
        self.asks[int(at)] += 1
        refused = self.ask(token)
        if refused is None:
            self.later(at + self.takes, n, token, self._end)
        else:
            wait = refused.wait.by(self.chance.random()).total_seconds()
            self.later(at + wait, n, token, self._ask)

    def _end(self, at, n, token):
        again = self.end(at, token)
        if again is None:
            self.ended_at = at
        else:
            self.later(at + again, n, f"{token}'", self._ask)


class Limited(Crowd):
    def __init__(self, limit, size, takes=0.0):
        super().__init__(size)
        self.limits, self.scopes = InProcessLimits(self.clock), [LimitScope(limit, "")]
        self.takes = takes
        self.run()

    def ask(self, token):
        return self.limits.take(self.scopes, token)

    def end(self, _at, token):
        self.limits.release(self.scopes, token)


class Outage(Crowd):
    """Retries of a dependency that is away for *ends_at* seconds, beside first attempts."""

    takes = 0.1

    def __init__(self, settings, size, firsts, ends_at):
        super().__init__(size, come_within=5.0)
        self.budgets = InProcessBudgets(default=settings, clock=self.clock)
        self.ends_at, self.failed = ends_at, 0
        for n in range(firsts * ends_at * 2):
            self.later(n / firsts, -1 - n, "", lambda *_: self.budgets.first(["crm"]))
        self.run()

    def ask(self, token):
        return self.budgets.retry(["crm"], token)

    def end(self, at, token):
        if at < self.ends_at:
            self.failed += 1
            return self.chance.uniform(1, 5)
        self.budgets.returned(["crm"], token)
        return None


def test_a_burst_comes_back_at_the_rate_at_which_it_can_go():
    size, limit = 5000, Limit("crm", rate=50, burst=100)
    crowd = Limited(limit, size)
    assert crowd.ended_at == pytest.approx((size - limit.burst) / limit.rate, rel=0.02)
    assert crowd.asks.total() <= 2 * size, "each asks twice at most"
    del crowd.asks[0]
    assert max(crowd.asks.values()) <= limit.rate + 1


def test_who_finds_no_place_in_line_neither_storms_nor_starves():
    size, limit = 1500, Limit("crm", rate=2, burst=1)  # twelve minutes and a half
    crowd = Limited(limit, size)
    assert crowd.ended_at == pytest.approx(size / limit.rate, rel=0.1)
    assert crowd.asks.total() <= 6 * size


def test_a_crowd_before_slots_keeps_them_busy_and_does_not_storm():
    size, limit = 1000, Limit("crm", concurrency=8)
    crowd = Limited(limit, size, takes=2.0)
    assert crowd.ended_at <= 1.1 * size * 2.0 / 8
    del crowd.asks[0]
    at_first = limit.concurrency / limit_rules.NEW.held
    assert max(crowd.asks.values()) <= at_first
    assert crowd.asks.total() <= 8 * size


def test_an_outage_costs_its_budget_and_a_backlog_drains_within_half_a_window():
    settings, ends_at, firsts, size = BudgetSettings(), 120, 50, 2000
    crowd = Outage(settings, size, firsts, ends_at)
    a_window = settings.share * firsts * 60 + settings.least
    assert a_window < crowd.failed <= 2 * a_window + 1
    assert crowd.ended_at - ends_at <= settings.window.total_seconds() / 2 * 1.2
    while_away = [crowd.asks[second] for second in range(10, ends_at)]
    assert max(while_away) <= size / 10
