"""Limits of one process."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from angzarr.adapters.memory.limits import InProcessBudgets, InProcessLimits
from angzarr.resilience.budget import BudgetSettings
from angzarr.resilience.limit import Limit
from contracts.budgets import BudgetsContract
from contracts.limits import LimitsContract, let_through, scopes
from hand_clock import ByHand, HandClock


class TestInProcessLimits(ByHand, LimitsContract):
    @pytest.fixture
    def limits(self, clock):
        return InProcessLimits(clock)

    def test_keys_that_say_nothing_any_more_are_forgotten(self, limits, clock):
        limit = Limit("tenant", rate=1, concurrency=1, per="tenant")
        kept = scopes(limit, key="kept")
        let_through(limits, kept, 1)
        for n in range(10_000):
            asked = scopes(limit, key=f"tenant {n}")
            (token,) = let_through(limits, asked, 1)
            limits.release(asked, token)
            clock.sleep(timedelta(seconds=1))
        assert len(limits._meters) <= 1001
        assert let_through(limits, kept, 1) == []


@given(
    pauses=st.lists(st.floats(0, 5), max_size=200),
    rate=st.floats(0.2, 100),
    burst=st.floats(1, 20),
)
def test_no_span_has_more_calls_than_a_burst_and_its_rate(pauses, rate, burst):
    clock = HandClock()
    limits = InProcessLimits(clock)
    limit = scopes(Limit("crm", rate=rate, burst=burst))
    calls = []
    for pause in pauses:
        clock.sleep(timedelta(seconds=pause))
        calls += [clock.now().timestamp()] * len(let_through(limits, limit, 3))
    for first, began in enumerate(calls):
        for last, ended in enumerate(calls[first:]):
            assert last + 1 <= burst + rate * (ended - began) + 1e-3


@given(pause=st.floats(0, 100), rate=st.floats(0.2, 100), times=st.integers(1, 30))
def test_who_comes_evenly_is_never_refused(pause, rate, times):
    clock = HandClock()
    limits = InProcessLimits(clock)
    limit = scopes(Limit("crm", rate=rate, burst=1))
    clock.sleep(timedelta(seconds=pause))
    for _ in range(times):
        assert let_through(limits, limit, 1)
        clock.sleep(timedelta(seconds=1 / rate + 2e-6))


class TestInProcessBudgets(ByHand, BudgetsContract):
    @pytest.fixture
    def make(self, clock):
        return lambda settings: InProcessBudgets(default=settings, clock=clock)

    @pytest.fixture
    def settled(self):
        return lambda _budgets: None


STEPS = st.one_of(
    st.tuples(st.just("first"), st.integers(1, 20)),
    st.tuples(st.just("retry"), st.integers(1, 20)),
    st.tuples(st.just("returned"), st.integers(0, 50)),
    st.tuples(st.just("pass"), st.sampled_from([1, 300, 3_000, 6_000, 9_999, 10_000, 10_400])),
)


@settings(max_examples=300)
@given(
    steps=st.lists(STEPS, max_size=60),
    share=st.sampled_from([0.0, 0.1, 0.2, 1 / 3, 1.0]),
    least=st.integers(1, 5),
)
def test_no_window_costs_more_retries_than_its_first_attempts_allow(steps, share, least):
    clock = HandClock()
    rules = BudgetSettings(share=share, least=least, window=timedelta(seconds=10))
    budgets = InProcessBudgets(default=rules, clock=clock)
    firsts, retries = [], {}  # when they were; by token
    for number, (step, size) in enumerate(steps):
        if step == "pass":
            clock.sleep(timedelta(milliseconds=size))
        elif step == "returned" and retries:
            token = sorted(retries)[size % len(retries)]
            budgets.returned(["crm"], token)
            del retries[token]
        elif step == "first":
            for _ in range(size):
                budgets.first(["crm"])
                firsts.append(clock.now())
        elif step == "retry":
            for n in range(size):
                token = f"{number}-{n}"
                if budgets.retry(["crm"], token) is None:
                    retries[token] = clock.now()
                    began = clock.now() - rules.window
                    cost = sum(at > began for at in retries.values())
                    of = sum(at > began for at in firsts)
                    assert cost <= share * of + least + 1e-9
