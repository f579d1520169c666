"""Delays hold nothing: no slot, no memory, no message at the broker; and outlive everything."""

from __future__ import annotations

import os
import signal
import time
from contextlib import contextmanager
from functools import partial
from urllib.parse import urlsplit

import boto3
import pytest
import redis

from endurance import soak
from polling import PATIENCE, wait_until
from rabbitmq_servers import PrivateRabbitMQ
from redis_servers import PrivateRedis
from system.conftest import Site

#: Longer than a worker takes to start, so that a wait goes on while there is none.
DELAY = 5.0
#: A wait is this often as long as one event takes on this machine, and `DELAY` longer.
SLOWNESS = 8
#: RabbitMQ tries what it could not move on from a delay again after 3 minutes; on a slow machine it
#: may be late for one level of the delay and then for the next.
MOVED_AGAIN = 420
#: How long a second run would have to show itself.
AFTERWARDS = 3.0

BROKERS = ["redis", "classic", "quorum", "sqs"]


class Delayed(Site):
    """A site that can tell what its broker holds for it: messages ready, and messages unacked."""

    def __init__(self, kind, broker, *arguments):
        self.kind, self.broker = kind, broker
        super().__init__(*arguments)

    def at_broker(self) -> int:
        return {"redis": self._in_redis, "sqs": self._in_sqs}.get(self.kind, self._in_rabbitmq)()

    def _in_rabbitmq(self):
        """What RabbitMQ counts as ready; what is unacked is ready once its worker is dead."""
        with self.app.connection_for_read() as connection:
            channel = connection.channel()
            return channel.queue_declare(self.module.PREFIX, passive=True).message_count

    def _in_redis(self):
        with redis.Redis.from_url(self.broker) as client:
            sessions = list(client.scan_iter("unacked:*#*"))
            return client.llen(self.module.PREFIX) + sum(map(client.hlen, sessions))

    def _in_sqs(self):
        at = urlsplit(self.broker)
        client = boto3.client("sqs", endpoint_url=f"http://{at.hostname}:{at.port}")
        url = client.get_queue_url(QueueName=self.module.PREFIX)["QueueUrl"]
        counts = [f"ApproximateNumberOfMessages{kind}" for kind in ("", "NotVisible", "Delayed")]
        found = client.get_queue_attributes(QueueUrl=url, AttributeNames=counts)["Attributes"]
        return sum(int(found[name]) for name in counts)

    def long_enough(self):
        """Return seconds in which this machine, however slow it is, does much more than a test."""
        begun, n = time.time(), 1000
        self.app.publish(self.module.Thing(n=n))
        wait_until(lambda: self.runs(n), "an event is handled")
        return DELAY + SLOWNESS * (time.time() - begun)

    def delay(self, n, seconds=DELAY):
        """Have one event retried after *seconds*; return when the retry is due."""
        self.app.publish(self.module.Thing(n=n, fate="later", seconds=seconds))
        wait_until(lambda: self.settled(n), "the retry is settled")
        (first,) = (line for line in self.ran("handle") if line["n"] == n)
        return first["at"] + seconds

    def settled(self, n):
        return len([line for line in self.ran("handle") if line["n"] == n]) and (
            self.text().count('"event":"retrying_after_failure"') > n
        )

    def runs(self, n):
        return [line for line in self.ran("handle") if line["n"] == n]

    def wait_second_run(self, n, seconds=PATIENCE):
        wait_until(lambda: len(self.runs(n)) > 1, f"event {n} runs again", seconds)
        time.sleep(AFTERWARDS)
        assert [line["attempt"] for line in self.runs(n)] == [1, 2], "once"
        return self.runs(n)[1]["at"]


@pytest.fixture
def make_delayed(make_site):
    def make(kind, broker, **given):
        return make_site(
            make=partial(Delayed, kind, broker), broker=broker, ROAD_QUEUES=kind, **given
        )

    return make


@pytest.fixture
def delayed(request, make_delayed):
    kind = request.param
    if kind == "sqs":
        at = urlsplit(request.getfixturevalue("sqs_endpoint"))
        account = os.environ["AWS_ACCESS_KEY_ID"]
        broker = f"sqs://{account}:test@{at.hostname}:{at.port}//"
    else:
        broker = request.getfixturevalue("redis_url" if kind == "redis" else "amqp_url")
    return make_delayed(kind, broker)


@pytest.mark.parametrize("delayed", BROKERS, indirect=True)
def test_a_retry_outlives_every_worker_holds_nothing_and_runs_once_at_its_time(delayed):
    with delayed.worker("--concurrency", "1") as victim:
        due = delayed.delay(0, delayed.long_enough())
        delayed.app.publish(delayed.module.Thing(n=1))
        delayed.wait_ran("handled", 2)
        assert len(delayed.runs(0)) == 1, "the only slot was free meanwhile"
        wait_until(lambda: delayed.at_broker() == 0, "the broker is empty")
        time.sleep(1)  # what RabbitMQ has unacked shows only below; let acknowledgements reach it
        os.killpg(victim.pid, signal.SIGKILL)
        victim.wait(60)
    time.sleep(1)
    assert delayed.at_broker() == 0, "nothing came back, so nothing was unacked"
    with delayed.worker("--concurrency", "1"):
        ran_at = delayed.wait_second_run(0)
    assert due - 0.01 <= ran_at


@pytest.mark.parametrize("delayed", ["redis", "classic", "sqs"], indirect=True)
def test_a_publishers_countdown_is_held_by_no_worker_and_runs_once_at_its_time(delayed):
    add = delayed.module.add
    with delayed.worker("--concurrency", "1") as victim:
        wait, sent_at = delayed.long_enough(), time.time()
        for n in range(30):
            add.apply_async((n, 0), countdown=wait)
        add.delay(99, 0)
        delayed.wait_ran("add", 1)
        (first,) = delayed.ran("add")
        assert first["args"][0] == 99, "those that wait keep nobody"
        wait_until(lambda: delayed.at_broker() == 0, "the broker is empty")
        time.sleep(1)
        os.killpg(victim.pid, signal.SIGKILL)
        victim.wait(60)
    assert delayed.at_broker() == 0, "nothing came back, so nothing was unacked"
    with delayed.worker("--concurrency", "1"):
        delayed.wait_ran("add", 31)
        time.sleep(AFTERWARDS)
    runs = [line for line in delayed.ran("add") if line["args"][0] != 99]
    assert sorted(line["args"][0] for line in runs) == list(range(30)), "each once"
    assert all(line["at"] > sent_at + wait - 0.01 for line in runs)


@pytest.mark.parametrize("delayed", ["redis", "classic", "quorum"], indirect=True)
def test_retries_of_many_workers_come_at_their_time_and_once(delayed):
    with delayed.worker(), delayed.worker():
        for n in range(20):
            delayed.app.publish(delayed.module.Thing(n=n, fate="later", seconds=1 + n / 10))
        delayed.wait_ran("handled", 20)
        time.sleep(AFTERWARDS)
    for n in range(20):
        first, second = delayed.runs(n)
        assert 1 + n / 10 - 0.01 <= second["at"] - first["at"]


@pytest.mark.parametrize("delayed", ["redis", "classic"], indirect=True)
def test_children_that_are_forked_while_a_mover_publishes_run_well(delayed):
    with delayed.worker("--max-tasks-per-child", "2"):
        for n in range(20):
            delayed.app.publish(delayed.module.Thing(n=n, fate="later", seconds=0.15))
        delayed.wait_ran("handled", 20)
    assert {line["n"] for line in delayed.ran("handled")} == set(range(20))
    assert len({line["pid"] for line in delayed.ran("handle")}) >= 10, "many were forked"


# -- servers that restart or are away ------------------------------------------------------------


@contextmanager
def private(kind, folder):
    if kind == "redis":
        with PrivateRedis(folder / "redis", durable=True) as server:
            yield server
    else:
        with PrivateRabbitMQ(folder / "rabbitmq") as server:
            yield server


@pytest.mark.parametrize("kind", ["redis", soak("classic"), "quorum"])
def test_a_retry_outlives_a_restart_of_the_broker_and_of_every_worker(make_delayed, kind, tmp_path):
    with private(kind, tmp_path) as server:
        store = {"store": server.url} if kind == "redis" else {}
        site = make_delayed(kind, server.url, **store)
        with site.worker():
            due = site.delay(0)
            server.restart()  # under the worker's feet
            site.app.publish(site.module.Thing(n=1))
            site.wait_ran("handled", 1)
        if kind == "redis":
            server.restart()
        with site.worker():
            ran_at = site.wait_second_run(0, seconds=MOVED_AGAIN)
    assert due - 0.01 <= ran_at


@pytest.mark.parametrize("away", ["store", "broker"])
def test_what_falls_due_while_a_server_is_away_runs_once_when_it_is_back(
    make_delayed, cable, redis_url, amqp_url, away
):
    proxy, url = cable(redis_url if away == "store" else amqp_url)
    broker, store = (url, redis_url) if away == "broker" else (amqp_url, url)
    site = make_delayed("classic", broker, store=store)
    with site.worker():
        due = site.delay(0, site.long_enough())
        proxy.cut()
        begun, event = time.monotonic(), "broker_away" if away == "broker" else "schedule_away"
        wait_until(lambda: time.time() > due and event in site.text(), "it is missed")
        assert len(site.runs(0)) == 1
        logged, minutes = site.text().count(event), (time.monotonic() - begun) / 60
        proxy.mend()
        site.wait_second_run(0)
    assert logged <= 1 + minutes, "one line a minute"
