"""Workers that are asked to stop, in every pool and on every broker: all is finished or given back.

The bound is 10 s with the grace that a worker has by default; most tests give a shorter one, so
that they need not wait for it.
"""

from __future__ import annotations

import os
import signal
import threading
import time
import uuid
from collections import Counter
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest

from endurance import longer
from polling import wait_until
from system.conftest import Site

POOLS = ["prefork", "threads", "solo"]
#: Longer than any test.
FOR_EVER = 900


@pytest.fixture
def site_on(make_site, redis_url, amqp_url, request):
    def make(broker: str = "redis", **environment: str) -> Site:
        url = _broker_url(broker, redis_url, amqp_url, request)
        return make_site(broker=url, **environment)

    return make


def _broker_url(broker, redis_url, amqp_url, request) -> str:
    if broker == "sqs":
        place = urlsplit(request.getfixturevalue("sqs_endpoint")).netloc
        return f"sqs://{os.environ['AWS_ACCESS_KEY_ID']}:test@{place}//"
    return {"redis": redis_url, "amqp": amqp_url}[broker]


def worker(site, pool, *options):
    name = f"celery@{uuid.uuid4().hex[:8]}"
    return site.worker("--hostname", name, *options, pool=pool)


def publish(site, numbers, **event):
    for n in numbers:
        site.app.publish(site.module.Thing(n=n, **event), id=f"{site.module.PREFIX}-{n}")


def handled(site):
    return Counter(line["n"] for line in site.ran("handled"))


def wait_handled(site, numbers):
    wait_until(lambda: set(numbers) <= set(handled(site)), "everything to be handled")
    return handled(site)


def runs_of(site, n):
    return [(line["worker"], line["attempt"]) for line in site.ran("handle") if line["n"] == n]


def wait_end(process) -> None:
    """Wait until *process* has ended by itself: long before what takes for ever does."""
    process.wait(FOR_EVER / 10)


@pytest.mark.longer
@pytest.mark.parametrize(
    ("broker", "pools"),
    [
        ("redis", longer(POOLS, [*POOLS, "prefork", "threads"])),
        ("amqp", longer(["prefork", "threads"], POOLS)),
        ("sqs", longer(["threads", "prefork"], POOLS)),
    ],
    ids=["redis", "amqp", "sqs"],
)
def test_sigterm_under_load_finishes_or_gives_back_everything(site_on, broker, pools):
    """One handler outlasts every grace: it is cut each time, uses no attempt, is no poison."""
    site = site_on(broker, ROAD_GRACE="2")
    publish(site, [0], fate="long", seconds=FOR_EVER, times=len(pools))
    published, victims = 1, []
    with ExitStack() as stack:
        for pool in pools:
            victim = stack.enter_context(worker(site, pool))
            if victims:
                wait_end(victims[-1])
            wait_until(lambda: len(runs_of(site, 0)) == len(victims) + 1, "the long one to run")
            ran = len(site.ran("handled"))
            publish(site, range(published, published + 24), fate="slow", seconds=0.05)
            published += 24
            if pool != "solo":
                site.wait_ran("handled", ran + 2)
            victim.send_signal(signal.SIGTERM)
            victims.append(victim)
        last = stack.enter_context(worker(site, "prefork"))
        wait_end(victims[-1])
        counts = wait_handled(site, range(published))
    assert [victim.returncode for victim in victims] == [0] * len(pools)
    assert counts == dict.fromkeys(range(published), 1)
    assert runs_of(site, 0) == [(one.pid, 1) for one in (*victims, last)]
    # Of two slots the long one keeps one; a slow machine may not finish the other in its grace.
    assert len(site.ran("handle")) <= published + 2 * len(pools), "nothing else runs again"


@pytest.mark.parametrize(
    ("broker", "pool"),
    [("redis", "prefork"), ("amqp", "threads")],
)
def test_what_was_prefetched_runs_elsewhere_while_a_long_task_is_finished(site_on, broker, pool):
    site = site_on(broker, ROAD_GRACE=str(FOR_EVER))  # a new worker may need long to begin
    with worker(site, pool, "--prefetch-multiplier", "4") as first:
        publish(site, [0, 1], fate="gated")
        site.wait_ran("handle", 2)
        publish(site, range(2, 8))
        time.sleep(0.5)  # they are prefetched, which nothing tells; if not the test is easier
        first.send_signal(signal.SIGTERM)
        with worker(site, pool):
            wait_handled(site, range(2, 8))
            assert first.poll() is None, "they did not wait for the long ones"
            site.journal.with_name("gate").touch()
            wait_end(first)
            counts = wait_handled(site, range(8))
    assert counts == dict.fromkeys(range(8), 1)
    assert {runs_of(site, n)[0][0] for n in (0, 1)} == {first.pid}
    assert {run[0] for n in range(2, 8) for run in runs_of(site, n)} != {first.pid}


def test_by_default_a_worker_ends_soon_after_its_grace_whatever_runs(site_on):
    site = site_on()
    with worker(site, "prefork") as only:
        publish(site, [0, 1], fate="long", seconds=FOR_EVER)
        site.wait_ran("handle", 2)
        asked = time.monotonic()
        only.send_signal(signal.SIGTERM)
        wait_end(only)
    assert time.monotonic() - asked > 5, "that is the grace"


@pytest.mark.parametrize(
    ("pool", "number", "again"),
    [
        ("prefork", signal.SIGTERM, signal.SIGTERM),
        ("threads", signal.SIGTERM, signal.SIGQUIT),
        ("solo", signal.SIGINT, signal.SIGINT),
    ],
)
def test_a_second_signal_ends_the_grace(site_on, pool, number, again):
    site = site_on(ROAD_GRACE=str(FOR_EVER))
    with worker(site, pool) as first:
        publish(site, [0], fate="long", seconds=FOR_EVER)
        site.wait_ran("handle", 1)
        first.send_signal(number)
        time.sleep(1)
        assert first.poll() is None, "the grace is longer"
        first.send_signal(again)
        wait_end(first)
    assert handled(site) == {}


def test_sigterm_to_all_processes_of_a_worker_lets_handlers_finish(site_on):
    """As service managers send it."""
    site = site_on()
    with worker(site, "prefork") as only:
        publish(site, [0, 1], fate="slow", seconds=2)
        site.wait_ran("handle", 2)
        os.killpg(only.pid, signal.SIGTERM)
        wait_end(only)
    assert handled(site) == {0: 1, 1: 1}
    assert len(site.ran("handle")) == 2


def test_a_shutdown_by_remote_control_is_as_sigterm(site_on):
    site = site_on(ROAD_GRACE="3")
    with worker(site, "threads") as first:
        publish(site, [0], fate="long", seconds=FOR_EVER)
        publish(site, [1], fate="slow", seconds=0.7)
        site.wait_ran("handle", 2)
        site.app.control.shutdown()
        wait_end(first)
    with worker(site, "threads"):
        counts = wait_handled(site, [0, 1])
    assert counts == {0: 1, 1: 1}
    assert runs_of(site, 1) == [(first.pid, 1)]


def test_a_rolling_update_under_load_loses_and_repeats_nothing(site_on):
    site = site_on()
    total = 100
    load = threading.Thread(target=_publish_slowly, args=(site, total))
    with ExitStack() as stack:
        old = stack.enter_context(worker(site, "prefork"))
        load.start()
        for round_ in range(3):
            wait_until(lambda least=20 * (round_ + 1): len(handled(site)) >= least)
            new = stack.enter_context(worker(site, "prefork"))
            old.send_signal(signal.SIGTERM)
            wait_end(old)
            old = new
        load.join()
        counts = wait_handled(site, range(total))
    assert counts == dict.fromkeys(range(total), 1)
    assert len(site.ran("handle")) == total, "none was cut either: 0.05 s are within the grace"


def _publish_slowly(site, total):
    for n in range(total):
        publish(site, [n], fate="slow", seconds=0.05)
        time.sleep(0.02)


def test_children_that_are_replaced_lose_and_repeat_nothing(site_on):
    site = site_on()
    with worker(site, "prefork", "--max-tasks-per-child", "3") as first:
        publish(site, range(40), fate="slow", seconds=0.02)
        site.wait_ran("handled", 12)
        first.send_signal(signal.SIGTERM)
        wait_end(first)
    with worker(site, "threads"):
        counts = wait_handled(site, range(40))
    assert counts == dict.fromkeys(range(40), 1)
    assert len(site.ran("handle")) == 40


def test_a_pool_that_shrinks_loses_and_repeats_nothing(site_on):
    site = site_on()
    with worker(site, "prefork", "--concurrency", "3") as only:
        publish(site, range(150), fate="slow", seconds=0.01)
        for grows in (False, True) * 2:
            change = site.app.control.pool_grow if grows else site.app.control.pool_shrink
            change(1, reply=True, timeout=60, limit=1)
        counts = wait_handled(site, range(150))
        assert only.poll() is None
    assert counts == dict.fromkeys(range(150), 1)
    assert len(site.ran("handle")) == 150
