"""The road under faults: whatever goes away comes back, and nothing is lost or handled twice."""

from __future__ import annotations

import json
import os
import signal
import time
import uuid
from collections import Counter

import pytest

import warm_process
from polling import wait_until
from postgresql_servers import PrivatePostgreSQL
from system.conftest import PATH, stop

EVENTS = 40


def publish(site, numbers, **event):
    for n in numbers:
        site.app.publish(site.module.Thing(n=n, **event), id=f"{site.module.PREFIX}-{n}")


def handled(site):
    return Counter(line["n"] for line in site.ran("handled"))


def wait_handled(site, number):
    wait_until(lambda: len(handled(site)) >= number, f"{number} events handled")
    return handled(site)


def test_an_outage_of_the_claim_store_costs_time_and_nothing_else(make_site, cable, redis_url):
    proxy, store = cable(redis_url)
    site = make_site(store=store)
    with site.worker():
        publish(site, range(EVENTS), fate="slow", seconds=0.05)
        wait_handled(site, 5)
        proxy.cut()
        before = len(handled(site))
        wait_until(lambda: "holding event" in site.text(), "the worker to hold")
        time.sleep(2)
        during = len(handled(site))
        proxy.mend()
        counts = wait_handled(site, EVENTS)
    assert during - before <= 4, "without claims nothing is begun"
    assert set(counts) == set(range(EVENTS))
    assert set(counts.values()) == {1}


@pytest.fixture
def postgresql(tmp_path):
    with PrivatePostgreSQL(tmp_path / "postgresql") as server:
        yield server


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_worker_goes_on_when_its_postgresql_stood_by_for_a_while(make_site, postgresql, pool):
    site = make_site(store=postgresql.url, ANGZARR_FACTS__URL=postgresql.url)
    with site.worker(pool=pool):
        publish(site, range(EVENTS), fate="slow", seconds=0.2)
        wait_handled(site, 5)
        postgresql.stand_by()
        before = len(handled(site))
        wait_until(lambda: "holding event" in site.text(), "the worker to hold")
        time.sleep(2)
        during = len(handled(site))
        postgresql.promote()
        counts = wait_handled(site, EVENTS)
        publish(site, [EVENTS], fate="flaky")
        wait_handled(site, EVENTS + 1)
    assert during - before <= 4, "without claims nothing is begun"
    assert set(counts.values()) == {1}
    assert "fact_refused" not in site.text()


def test_an_outage_of_the_dead_letter_queue_holds_the_failed_and_loses_no_letter(
    make_site, cable, amqp_url
):
    proxy, letters = cable(amqp_url)
    site = make_site(letters=letters)
    with site.worker():
        proxy.cut()
        publish(site, range(2), fate="give up")
        site.wait_ran("handle", 2)
        wait_until(lambda: "holding event" in site.text(), "the worker to hold")
        proxy.mend()
        found = site.letters("thing", 2)
    assert sorted(letter.event.data["n"] for letter in found) == [0, 1]
    assert len(site.ran("handle")) == 2, "a held event is settled again, not run again"


def test_a_broker_connection_cut_under_load_loses_nothing(make_site, cable, amqp_url):
    proxy, broker = cable(amqp_url)
    site = make_site(broker=broker)
    with site.worker():
        publish(site, range(EVENTS), fate="slow", seconds=0.05)
        wait_handled(site, 5)
        proxy.cut()
        time.sleep(1)
        proxy.mend()
        counts = wait_handled(site, EVENTS)
    assert set(counts) == set(range(EVENTS))


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo"])
def test_what_runs_when_the_connection_is_lost_runs_on_and_only_once(
    make_site, cable, amqp_url, pool
):
    proxy, through = cable(amqp_url)
    site = make_site(broker=through)
    with site.worker(pool=pool):
        publish(site, [1], fate="slow", seconds=6.0)
        site.wait_ran("handle")
        proxy.cut()
        time.sleep(1)
        proxy.mend()
        publish(site, [2])
        assert wait_handled(site, 2) == {1: 1, 2: 1}
        time.sleep(3)  # its copy came in the meantime, waited, and is let go
    assert Counter(line["n"] for line in site.ran("handle")) == {1: 1, 2: 1}


@pytest.mark.parametrize("pool", ["prefork", "solo"])
def test_a_worker_comes_back_that_rabbitmq_has_not_missed(make_site, cable, amqp_url, pool):
    # Celery's own queue of remote control would be locked by the connection before.
    proxy, through = cable(amqp_url)
    site = make_site(broker=through)
    with site.worker(pool=pool, ROAD_HEARTBEAT="2") as worker:
        site.app.publish(site.module.Thing(n=1), root="r")
        site.wait_ran("handled")
        proxy.forsake()  # what RabbitMQ still sends there comes again after two heartbeats
        site.app.publish(site.module.Thing(n=2), root="r")
        site.wait_ran("handled", 2)
        assert worker.poll() is None


def test_a_second_worker_of_one_name_works_beside_the_first(make_site):
    site = make_site()
    name = f"--hostname={uuid.uuid4().hex}@%h"
    with site.worker(name, pool="solo"), site.worker(name, pool="solo") as second:
        site.app.publish(site.module.Thing(n=1), root="r")
        site.wait_ran("handled")
        assert second.poll() is None


def test_a_flood_of_duplicates_is_handled_once_each(make_site):
    site = make_site()
    with site.worker(), site.worker():
        for _ in range(10):
            publish(site, range(20))
        counts = wait_handled(site, 20)
        wait_until(lambda: _queued(site) == 0, "the queue to be empty")
        time.sleep(3)  # in-progress duplicates come back after 2 s
    assert set(handled(site).values()) == {1}
    assert set(counts) == set(range(20))


def _queued(site):
    with site.app.connection_for_read() as connection:
        channel = connection.channel()
        return channel.queue_declare(site.module.PREFIX, passive=True).message_count


@pytest.mark.parametrize("pool", ["prefork", "threads", "gevent"])
def test_a_sigterm_under_load_loses_nothing_and_repeats_nothing_completed(make_site, pool):
    site = make_site()
    with site.worker(pool=pool) as first:
        publish(site, range(EVENTS), fate="slow", seconds=0.1)
        wait_handled(site, 5)
        first.send_signal(signal.SIGTERM)
        with site.worker(pool=pool):
            stop(first)
            counts = wait_handled(site, EVENTS)
    assert set(counts) == set(range(EVENTS))
    assert set(counts.values()) == {1}


@pytest.mark.parametrize("pool", ["prefork", "gevent"])
def test_a_kill_minus_9_of_the_whole_worker_loses_nothing(make_site, pool):
    site = make_site()
    for _ in range(3):
        with site.worker(pool=pool) as victim:
            start = len(handled(site))
            publish(site, range(start, start + 15), fate="slow", seconds=0.1)
            wait_handled(site, start + 4)
            os.killpg(victim.pid, signal.SIGKILL)
    with site.worker(pool=pool):
        everything = {int(n) for n in range(max(handled(site)) + 1)}
        wait_until(lambda: everything <= set(handled(site)), "everything to be handled")
    repeated = [n for n, times in handled(site).items() if times > 1]
    assert len(repeated) <= 3 * 2, "only what was running when its worker was killed may repeat"


def test_the_whole_loop_from_failure_to_replay_and_resolution(make_site, tmp_path, amqp_url):
    """Worker, analysis worker and ledger as processes; the event fails for good, then is well.

    One of the events is so large that its letter leaves its body in the payload store.
    """
    payloads = {"url": f"file://{tmp_path}/payloads", "over": 10_000}
    letters = {"backend": "amqp", "amqp_url": amqp_url, "payloads": payloads}
    site = make_site(ROAD_DLQ=json.dumps(letters))
    ledger = f"sqlite:///{tmp_path}/ledger.db"
    environment = {
        **os.environ, **site.environment, "ANGZARR_LEDGER": ledger,
        "ANGZARR_ANALYSIS__FIRST_DELAY": "1", "PYTHONPATH": PATH,
    }  # fmt: skip
    analyze = ["angzarr", "-A", "road_app", "dlq", "analyze"]
    with site.worker():
        analyst = warm_process.begin(
            analyze, folder=tmp_path, environment=environment, log=tmp_path / "analyst.log"
        )
        try:
            publish(site, [1], fate="down")
            publish(site, [3], fate="down", filler="x" * 10_000)
            publish(site, [2], fate="give up")
            site.wait_ran("handled", 2)
            told = ["angzarr", "-A", "road_app", "dlq", "stats", "--json"]

            def statuses():
                said = warm_process.run(told, environment=environment, check=True)
                by = json.loads(said.stdout)["by_status"]
                return by.get("resolved") == 2 and "held" in by

            wait_until(statuses, "two entries resolved and one held")
        finally:
            stop(analyst)
    for n in (1, 3):
        runs = [(line["replay"], line["attempt"]) for line in site.ran("handle") if line["n"] == n]
        assert runs == [(0, 1), (0, 2), (0, 3), (1, 1)]
    assert handled(site) == {1: 1, 3: 1}
    stored = [path for path in (tmp_path / "payloads").rglob("*") if path.is_file()]
    assert [b"x" * 10_000 in path.read_bytes() for path in stored] == [True]


def test_a_worker_that_holds_gives_its_messages_back_when_it_is_stopped(make_site, cable, amqp_url):
    proxy, letters = cable(amqp_url)
    site = make_site(letters=letters)
    with site.worker() as holding:
        proxy.cut()
        publish(site, range(4), fate="give up")
        site.wait_ran("handle", 2)
        wait_until(lambda: "holding event" in site.text(), "the worker to hold")
        holding.send_signal(signal.SIGTERM)
        holding.wait(60)
    wait_until(lambda: _queued(site) == 4, "all four messages to be back in the queue")
    proxy.mend()
    with site.worker():
        found = site.letters("thing", 4)
    assert sorted(letter.event.data["n"] for letter in found) == [0, 1, 2, 3]


def test_a_connection_lost_again_and_again_makes_no_poison(make_site, cable, amqp_url):
    proxy, broker = cable(amqp_url)
    site = make_site(broker=broker)
    losses = 5
    with site.worker():
        publish(site, [0], fate="slow", seconds=12)
        site.wait_ran("handle")
        for n in range(1, losses + 1):
            proxy.cut()
            time.sleep(0.3)
            proxy.mend()
            publish(site, [n])
            wait_handled(site, n if n < losses else n + 1)
    assert set(handled(site).values()) == {1}
