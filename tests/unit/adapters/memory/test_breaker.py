"""Breakers of one process."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from angzarr.adapters.memory.breaker import InProcessBreakers
from angzarr.resilience.breaker import Barred, BreakerSettings, Permit
from hand_clock import HandClock

AT_ONCE = timedelta(0)


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture
def breakers(clock):
    return InProcessBreakers(clock=clock)


def fail(breakers, name="crm", times=10):
    for n in range(times):
        permit = breakers.admit(name, str(n))
        breakers.record(permit, ok=False, took=AT_ONCE)


def test_many_threads_get_one_probe(breakers, clock):
    fail(breakers)
    clock.sleep(timedelta(seconds=60))
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda n: breakers.admit("crm", f"call {n}"), range(200)))
    assert sum(isinstance(answer, Permit) for answer in answers) == 1


def test_settings_hold_for_their_name_only(clock):
    touchy = BreakerSettings(min_calls=1, failures_in_a_row=1)
    breakers = InProcessBreakers({"touchy": touchy}, clock=clock)
    for name in ("touchy", "crm"):
        fail(breakers, name, times=1)
    assert isinstance(breakers.admit("touchy", "t"), Barred)
    assert isinstance(breakers.admit("crm", "t"), Permit)
