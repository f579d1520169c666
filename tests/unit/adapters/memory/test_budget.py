"""Retry budgets of one process."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from angzarr.adapters.memory.budget import InProcessBudgets
from angzarr.resilience.budget import BudgetSettings
from contracts.budgets import BudgetsContract
from hand_clock import ByHand, HandClock


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
