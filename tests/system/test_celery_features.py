"""What a Celery user relies on keeps working on the road: one proof each."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time

import pytest
from celery import chain, chord, group

from polling import PATIENCE, wait_until

EVERY_POOL = ["prefork", "threads", "solo", "gevent"]
BROKERS = pytest.mark.parametrize("site", ["redis", "amqp"], indirect=True)


@pytest.mark.parametrize("pool", EVERY_POOL)
def test_each_pool_handles_retries_and_dead_letters(site, pool):
    pytest.importorskip("gevent") if pool == "gevent" else None
    asynchronous = "0" if pool == "gevent" else "1"
    with site.worker(pool=pool, ROAD_ASYNC=asynchronous):
        for n, fate in enumerate(["fine", "flaky", "give up", "skip"]):
            site.app.publish(site.module.Thing(n=n, fate=fate), id=f"{site.module.PREFIX}-{n}")
        site.wait_ran("handled", 2)
        # A worker without the asynchronous handler makes a letter of each message for it.
        letters = site.letters("thing", 1 if asynchronous == "1" else 5)
    (letter,) = (one for one in letters if one.error_code != "UNKNOWN_TASK")
    assert [line["attempt"] for line in site.ran("handle") if line["n"] == 1] == [1, 2, 3]
    assert letter.event.data["n"] == 2
    assert "never" in letter.explanation
    if asynchronous == "1":
        assert len(site.ran("handle_async")) == 4


@BROKERS
def test_chain_group_and_chord_give_their_results(site):
    add, total = site.module.add, site.module.total
    with site.worker():
        assert chain(add.s(1, 2), add.s(10), add.s(100)).delay().get(timeout=60) == 113
        assert sorted(group(add.s(n, n) for n in range(4)).delay().get(timeout=60)) == [0, 2, 4, 6]
        assert chord([add.s(1, 1), add.s(2, 2)], total.s()).delay().get(timeout=60) == 6
        linked = add.apply_async((3, 4), link=add.s(1000))
        assert linked.get(timeout=60) == 7
        site.wait_ran("add", 3 + 4 + 2 + 2)
    assert [line["args"] for line in site.ran("add")][-1] == [7, 1000]


@BROKERS
def test_retry_autoretry_and_replace_keep_their_meaning(site):
    with site.worker():
        assert site.module.asks.delay(5).get(timeout=60) == 5
        assert [line["retries"] for line in site.ran("asks")] == [0, 1, 2]
        with pytest.raises(KeyError):
            site.module.auto.delay().get(timeout=20)
        assert len(site.ran("auto")) == 3
        assert site.module.replaces.delay(4).get(timeout=60) == 5
        (letter,) = site.letters("unknown")
    assert letter.handler == "road_app.auto"
    assert letter.reason == "exhausted"


def test_task_routes_send_to_their_queue(site):
    with site.worker("-Q", f"{site.module.PREFIX}-other"):
        site.module.add.delay(1, 1)
        site.module.routed.delay()
        site.wait_ran("routed")
    assert site.ran("add") == []


@BROKERS
def test_countdown_of_a_publisher_is_kept(site):
    with site.worker():
        began = time.time()
        site.app.publish(site.module.Thing(n=1), countdown=1)
        (line,) = site.wait_ran("handled")
    assert line["at"] - began >= 0.9


def test_flower_sees_received_started_succeeded_retried_and_failed(site):
    seen: list[dict] = []
    with site.worker(), site.app.connection_for_read() as connection:
        receiver = site.app.events.Receiver(connection, handlers={"*": seen.append})
        listener = threading.Thread(target=lambda: _listen(receiver), name="flower", daemon=True)
        listener.start()
        wait_until(lambda: seen, "a heartbeat")
        site.app.publish(site.module.Thing(n=1, fate="flaky"))
        site.app.publish(site.module.Thing(n=2, fate="give up"))
        site.wait_ran("handled")
        site.letters("thing")
        wanted = {"task-received", "task-succeeded", "task-retried", "task-failed"}
        wait_until(lambda: wanted <= {event["type"] for event in seen}, f"all of {wanted}")
        receiver.should_stop = True
        listener.join(60)


def _listen(receiver):
    with contextlib.suppress(TimeoutError, OSError):
        receiver.capture(limit=None, timeout=PATIENCE, wakeup=True)


@pytest.mark.parametrize("site", ["amqp"], indirect=True)
def test_a_killed_worker_loses_nothing_on_rabbitmq(site):
    with site.worker() as first:
        for n in range(20):
            site.app.publish(site.module.Thing(n=n, fate="slow", seconds=0.1))
        site.wait_ran("handled", 3)
        os.killpg(first.pid, signal.SIGKILL)
    with site.worker():
        site.wait_ran("handled", 20)
        site.wait_ran("handle_async", 20)
    assert {line["n"] for line in site.ran("handled")} == set(range(20))
