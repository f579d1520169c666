"""Limits on a real Redis: the contract, a fleet, dead owners, a store that is away."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.adapters.counted import Counted
from tests.contracts.idempotency import fresh
from tests.contracts.limits import SLOW, TWO, LimitsContract, let_through, scopes
from tools.tcp_proxy import unused_port

from angzarr.adapters.memory.limits import InProcessLimits
from angzarr.adapters.redis.flow_line import FlowLine
from angzarr.adapters.redis.limit import LEASE, RedisLimits
from angzarr.resilience.limit import Limit
from hand_clock import HandClock
from polling import PATIENCE, wait_until

#: Long enough for a slow machine to renew it, short enough to wait for its end.
LEASED = timedelta(milliseconds=1500)


@pytest.fixture
def prefix():
    return f"angzarr-{fresh()}"


@pytest.fixture
def open_limits(redis_url, prefix):
    lines = []

    def open_limits(url=redis_url, **options):
        lines.append(FlowLine(url, prefix=prefix))
        return RedisLimits(lines[-1], **options)

    yield open_limits
    for line in lines:
        line.close()


class TestRedisLimits(LimitsContract):
    @pytest.fixture
    def limits(self, open_limits):
        return open_limits()

    @pytest.fixture
    def let_pass(self):
        return lambda span: time.sleep(span.total_seconds() + 0.001)


LIMITS = (
    Limit("slow", rate=0.01, burst=4),
    Limit("slower", rate=0.004, burst=2),
    Limit("two", concurrency=2),
    Limit("both", rate=0.02, burst=6, concurrency=3),
)
STEPS = st.one_of(
    st.tuples(st.just("take"), st.sets(st.sampled_from(LIMITS), min_size=1)),
    st.tuples(st.just("release"), st.integers(0, 20)),
)


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(STEPS, max_size=30))
def test_redis_says_what_the_rules_say(open_limits, steps):
    """Time stands still for the rules and nearly so for Redis: its waits are seconds and more."""
    shared, model = open_limits(), InProcessLimits(HandClock())
    shared._line.start = lambda: None
    key, held = fresh(), []
    for step, what in steps:
        if step == "take":
            asked, token = scopes(*sorted(what, key=lambda limit: limit.name), key=key), fresh()
            said, expected = shared.take(asked, token), model.take(asked, token)
            assert (said is None) == (expected is None)
            if said is None:
                held.append((asked, token))
            else:
                waits = [one.wait.by(1.0).total_seconds() for one in (said, expected)]
                assert waits[0] == pytest.approx(waits[1], abs=5)
        elif held:
            asked, token = held.pop(what % len(held))
            shared.release(asked, token)
            model.release(asked, token)


def until(true):
    wait_until(true)


def until_taken(limits, slots):
    for _ in range(slots):
        until(lambda: let_through(limits, scopes(TWO), 1))


def test_one_round_trip_asks_all_limits_and_one_frees_all_slots(open_limits):
    limits = open_limits()
    counted = Counted(limits._line.client)
    asked = scopes(SLOW, TWO, Limit("three", concurrency=3))
    (token,) = let_through(limits, asked, 1)
    limits.release(asked, token)
    assert counted.steps == ["take", "release"]


def test_a_rate_alone_has_nothing_to_free(open_limits):
    limits = open_limits()
    counted = Counted(limits._line.client)
    (token,) = let_through(limits, scopes(SLOW), 1)
    limits.release(scopes(SLOW), token)
    assert counted.steps == ["take"]


def test_a_slot_is_held_for_longer_than_its_lease(open_limits):
    limits = open_limits(lease=LEASED)
    counted = Counted(limits._line.client)
    let_through(limits, scopes(TWO), 2)
    until(lambda: counted.steps.count("renew") >= 6)  # each a third of a lease
    assert let_through(open_limits(), scopes(TWO), 3) == []


def test_all_slots_of_a_process_are_renewed_in_one_round_trip(open_limits):
    moment = [0.0]
    limits = open_limits(monotonic=lambda: moment[0])
    limits._line.start = lambda: None  # turns are made by hand
    let_through(limits, scopes(Limit("many", concurrency=50), TWO), 2)
    counted = Counted(limits._line.client)
    limits._turn()
    assert counted.steps == []
    moment[0] = LEASE.total_seconds() / 3
    limits._turn()
    limits._turn()
    assert counted.steps == ["renew"]


def test_who_lost_its_slot_does_not_get_it_back(open_limits):
    limits, other = open_limits(lease=LEASED), open_limits()
    limits._line.start = lambda: None  # it does not say that it lives
    let_through(limits, scopes(TWO), 2)
    until_taken(other, 2)
    for held in limits._held.values():
        held.renewed = float("-inf")
    limits._turn()
    assert let_through(other, scopes(TWO), 5) == []
    key = f"{{{limits._line.prefix}:flow}}:slots:two:"
    assert limits._line.client.execute("ZCARD", key) == 2


def test_a_store_that_is_away_lets_calls_through(open_limits):
    limits = open_limits(f"redis://127.0.0.1:{unused_port()}/0")
    tokens = let_through(limits, scopes(SLOW, TWO), 50)
    assert len(tokens) == 50
    for token in tokens:
        limits.release(scopes(SLOW, TWO), token)


def test_a_slot_that_could_not_be_freed_is_freed_when_the_store_is_back(open_limits, make_redis):
    server = make_redis(durable=True)
    limits = open_limits(server.url)
    one, _ = let_through(limits, scopes(TWO), 2)
    server.kill()
    limits.release(scopes(TWO), one)
    server.start()
    watching = open_limits(server.url)
    until(lambda: let_through(watching, scopes(TWO), 1))
    assert let_through(watching, scopes(TWO), 5) == []


def test_what_cannot_be_freed_within_its_lease_is_forgotten(open_limits):
    moment = [0.0]
    limits = open_limits(f"redis://127.0.0.1:{unused_port()}/0", monotonic=lambda: moment[0])
    limits._line.start = lambda: None
    *early, late = let_through(limits, scopes(TWO), 5)
    for token in early:
        limits.release(scopes(TWO), token)
    assert len(limits._ended) == 4
    moment[0] = LEASE.total_seconds()
    limits.release(scopes(TWO), late)
    assert [one.token for one in limits._ended] == [late]


def test_no_key_outlives_its_use(open_limits, raw, prefix):
    limits = open_limits()
    asked = scopes(SLOW, TWO, key="a b")
    let_through(limits, asked, 5)
    keys = {key.decode() for key in raw.scan_iter(match=f"{{{prefix}:flow}}:*")}
    kinds = ("limit:slow", "limit:two", "slots:two")
    assert keys == {f"{{{prefix}:flow}}:{kind}:a%20b" for kind in kinds}
    assert all(0 < raw.pttl(key) <= 180_000 for key in keys)


# -- a fleet ---------------------------------------------------------------------------------


def hold(url, prefix, ready):
    """Take a slot, say so, and never free it."""
    limits = RedisLimits(FlowLine(url, prefix=prefix), lease=LEASED)
    assert let_through(limits, scopes(TWO), 1)
    ready.set()
    threading.Event().wait()


def test_the_slot_of_a_killed_worker_is_free_when_its_lease_ends(redis_url, prefix, open_limits):
    spawn = multiprocessing.get_context("spawn")
    ready = spawn.Event()
    worker = spawn.Process(target=hold, args=(redis_url, prefix, ready))
    worker.start()
    assert ready.wait(PATIENCE)
    limits = open_limits()
    assert len(let_through(limits, scopes(TWO), 3)) == 1
    os.kill(worker.pid, signal.SIGKILL)
    worker.join(PATIENCE)
    until_taken(limits, 1)
    assert let_through(limits, scopes(TWO), 3) == []


THREE = Limit("three", concurrency=3)
QUICK = Limit("quick", rate=100, burst=20)


def crowd(url, prefix, go, inside, said):
    """Ask for slots and calls in eight threads; *inside* counts who is in, over all processes."""
    line = FlowLine(url, prefix=prefix)
    limits, most, calls = RedisLimits(line), [0], []

    def work():
        go.wait()
        for _ in range(60):
            token = fresh()
            if limits.take(scopes(THREE), token) is None:
                with inside.get_lock():
                    inside.value += 1
                    most[0] = max(most[0], inside.value)
                time.sleep(0.002)
                with inside.get_lock():
                    inside.value -= 1
                limits.release(scopes(THREE), token)
            began = time.monotonic()
            if limits.take(scopes(QUICK), fresh()) is None:
                calls.append((began, time.monotonic()))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    line.close()
    said.put(json.dumps([most[0], calls]))


def test_a_fleet_is_never_over_its_limits(redis_url, prefix):
    spawn = multiprocessing.get_context("spawn")
    go, inside, said = spawn.Event(), spawn.Value("i", 0), spawn.Queue()
    what = (redis_url, prefix, go, inside, said)
    fleet = [spawn.Process(target=crowd, args=what) for _ in range(2)]
    for process in fleet:
        process.start()
    go.set()
    told = [json.loads(said.get(timeout=60)) for _ in fleet]
    for process in fleet:
        process.join(60)
    assert max(most for most, _ in told) == THREE.concurrency
    calls = sorted(call for _, calls in told for call in calls)
    span = max(ended for _, ended in calls) - min(began for began, _ in calls)
    assert QUICK.burst <= len(calls) <= QUICK.burst + QUICK.rate * span
