"""Limits of one process."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.adapters.memory.limit import InProcessLimits
from angzarr.resilience.limit import Limit
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
