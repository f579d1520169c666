"""Breakers of several processes, on one Redis."""

from __future__ import annotations

import time
from contextlib import ExitStack
from datetime import timedelta

import pytest
from tests.adapters.breaker_process import Process
from tests.contracts.breakers import LONG, fresh

from angzarr.resilience.breaker import BreakerSettings
from polling import wait_until

PROCESSES = THREADS = 8
OPEN_FOR = timedelta(milliseconds=300)


@pytest.fixture
def make_processes(redis_url):
    with ExitStack() as stack:

        def make(number, **settings):
            prefix = fresh()
            return [
                stack.enter_context(Process(redis_url, prefix, settings)) for _ in range(number)
            ]

        yield make


def with_probes(number: int) -> BreakerSettings:
    return BreakerSettings(
        min_calls=1, failures_in_a_row=1, open_for=OPEN_FOR, probe_lease=LONG, probes=number
    )


def test_half_open_gives_exactly_so_many_probes_to_64_threads_in_8_processes(make_processes):
    processes = make_processes(PROCESSES, one=with_probes(1), three=with_probes(3))
    for name in ("one", "three"):
        assert processes[0].ask("call", name, "-")
    for name, probes in [("one", 1), ("three", 3)] * 4:
        at = time.time() + OPEN_FOR.total_seconds() + 0.3
        for process in processes:
            process.tell("rush", name, THREADS, at)
        granted = [process.answer() for process in processes]
        assert sum(granted) == probes
        for process in processes:
            process.ask("record", "-")  # it opens again


def test_probe_of_a_process_that_was_killed_goes_to_another_after_its_lease(make_processes):
    lease = timedelta(seconds=5)
    settings = BreakerSettings(
        min_calls=1, failures_in_a_row=1, open_for=OPEN_FOR, probe_lease=lease, successes_to_close=1
    )
    killed, other = make_processes(2, crm=settings)
    assert killed.ask("call", "crm", "-")
    opened_at = time.monotonic()
    wait_until(lambda: killed.ask("admit", "crm"), "it has the probe")
    killed.running.kill()
    assert not other.ask("admit", "crm")
    wait_until(lambda: other.ask("admit", "crm"), "the lease ended")
    assert time.monotonic() - opened_at > lease.total_seconds() - 0.5
    other.ask("record", "+")
    assert other.ask("phase", "crm") == "closed"


def test_an_opening_is_heard_of_by_all_processes(make_processes):
    processes = make_processes(PROCESSES, crm=BreakerSettings(min_calls=PROCESSES, open_for=LONG))
    for process in processes[1:]:
        assert process.ask("call", "crm", "-")
    assert {process.ask("phase", "crm") for process in processes[1:]} == {"closed"}
    assert processes[0].ask("call", "crm", "-")
    for process in processes:
        wait_until(lambda one=process: one.ask("phase", "crm") == "open", "it heard of it")
    assert not any(process.ask("call", "crm", "+") for process in processes)
