"""Finished steps are undone, whatever kills the worker between two of them or in an undo."""

from __future__ import annotations

import json
import os
import signal

import pytest

from system.test_dying_workers import let_leases_end


def kill(site, worker):
    """End a worker as a power cut would, and let what it held be taken over at once."""
    os.killpg(worker.pid, signal.SIGKILL)
    worker.wait(60)
    let_leases_end(site)


def steps(site, what):
    return [line["step"] for line in site.ran(what)]


@pytest.mark.parametrize(
    ("site", "pool"),
    [("redis", "prefork"), ("redis", "threads"), ("amqp", "prefork"), ("amqp", "solo")],
    indirect=["site"],
)
def test_every_finished_step_is_undone_in_reverse_order_through_two_kills(site, pool):
    """Killed between two steps, its next run killed amid undoing, the third one gives up."""
    hanging = site.journal.with_name("hanging")
    hanging.write_text("charge")
    order = site.module.Order(n=1, runs=[["reserve", "charge"], ["ship"], []], hangs="charge")
    site.app.publish(order)
    with site.worker(pool=pool, ROAD_LEASE="1") as worker:
        site.wait_ran("registered", 2)
        kill(site, worker)
    with site.worker(pool=pool, ROAD_LEASE="1") as worker:
        site.wait_ran("undoing", 2)
        kill(site, worker)
    hanging.unlink()
    with site.worker(pool=pool, ROAD_LEASE="1"):
        (letter,) = site.letters("thing")
    assert steps(site, "finished") == ["reserve", "charge", "ship"]
    assert steps(site, "undone") == ["ship", "charge", "reserve"]
    assert steps(site, "undoing") == ["ship", "charge", "charge", "reserve"], "at least once"
    undone, ran = site.ran("undone"), site.ran("order")
    assert len(ran) == 3
    assert undone[-1]["at"] < ran[-1]["at"], "the handler ran before its steps were undone"
    assert (letter.reason, letter.error_code) == ("refused", "GIVEN_UP")


@pytest.fixture
def limited_site(make_site, redis_url):
    """A site whose handlers have time limits."""
    site = make_site(broker=redis_url, ROAD_LIMITS="1")
    site.forget_letters("thing")
    return site


def test_steps_that_a_hard_time_limit_leaves_are_undone_by_a_child(limited_site):
    site = limited_site
    with site.worker():
        site.app.publish(site.module.SlowOrder(n=1, runs=[["reserve", "ship"]], hangs="ship"))
        (letter,) = site.letters("thing")
    assert [line["attempt"] for line in site.ran("slow_order")] == [1, 2]
    assert steps(site, "undone") == ["ship", "reserve"] * 2
    assert [line["n"] for line in site.ran("undone") if line["pid"] == line["worker"]] == []
    assert (letter.reason, letter.error_code, letter.attempts) == ("exhausted", "TIME_LIMIT", 2)
    assert json.loads(letter.metadata["steps_undone"]) == ["ship", "reserve"]
