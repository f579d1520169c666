"""Behind Sentinel: the master is found, and found again when it is another."""

from __future__ import annotations

import threading
from collections import Counter

import pytest
from kombu import Connection, Exchange, Producer, Queue
from kombu.mixins import ConsumerMixin
from tests.adapters.redis_control_site import Site
from tests.adapters.redis_sides import consuming, held, publish

from redis_sentinel import MASTER
from redis_servers import wait_until

OURS = "angzarr.adapters.redis.transport:SentinelTransport"
STOCK = "kombu.transport.redis:SentinelTransport"
MESSAGES = 300


def connect(fleet, side: str = OURS, **options) -> Connection:
    if side == STOCK:
        options = {"polling_interval": 0.05, **options}
    # Quick to give up: a failover takes two seconds.
    usual = {"master_name": MASTER, "socket_timeout": 2, "socket_connect_timeout": 2}
    connection = Connection(fleet.url, transport=side, transport_options={**usual, **options})
    assert connection.get_transport_cls().__module__ == side.partition(":")[0]
    return connection


class Worker(ConsumerMixin):
    """What kombu's users write to consume for ever: reconnects when the connection is lost."""

    def __init__(self, connection, queue):
        self.connection = connection
        self.queue = queue
        self.seen: Counter = Counter()
        self.pace = threading.Semaphore(0)
        self.errors: list[Exception] = []

    def get_consumers(self, Consumer, channel):  # noqa: N803 - kombu's
        return [Consumer([Queue(self.queue)], on_message=self.take, prefetch_count=8)]

    def take(self, message):
        self.pace.acquire(timeout=60)
        self.seen[message.payload] += 1
        message.ack()

    def on_connection_error(self, exc, interval):
        self.errors.append(exc)


def running(worker):
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("side", [OURS, STOCK], ids=["ours", "stock"])
def test_the_master_is_asked_for(make_sentinel, unique_name, side):
    fleet = make_sentinel(sentinels=3)
    with connect(fleet, side) as connection:
        everyone = Exchange(f"{unique_name}-all", "fanout")
        with (
            consuming(connection, unique_name) as inbox,
            consuming(connection, Queue("mine", everyone), no_ack=True) as heard,
        ):
            inbox.turn()
            publish(connection, unique_name, ["x"], priority=6)
            assert inbox.wait(1) == ["x"]
            while not heard.messages:
                Producer(connection, everyone).publish("y")
                heard.turn()
        publish(connection, unique_name, ["left"])
    assert fleet.master.client().llen(unique_name) == 1


def test_the_two_sides_meet_behind_sentinel(make_sentinel, unique_name):
    fleet = make_sentinel()
    with connect(fleet, OURS) as ours, connect(fleet, STOCK) as stock:
        publish(ours, unique_name, ["from ours"])
        with consuming(stock, unique_name) as inbox:
            assert inbox.wait(1) == ["from ours"]
        publish(stock, unique_name, ["from stock"])
        with consuming(ours, unique_name) as inbox:
            assert inbox.wait(1) == ["from stock"]


def test_our_scheme_names_the_sentinels(make_sentinel, unique_name):
    fleet = make_sentinel(sentinels=3)
    url = fleet.url.replace("sentinel://", "angzarr-sentinel://")
    with Connection(url, transport_options={"master_name": MASTER}) as connection:
        publish(connection, unique_name, ["x"])
        with consuming(connection, unique_name) as inbox:
            assert inbox.wait(1) == ["x"]
    fleet.sentinels[0].kill()
    with Connection(url, transport_options={"master_name": MASTER}) as connection:
        publish(connection, unique_name, ["y"])
    assert fleet.servers[0].client().llen(unique_name) == 1


@pytest.mark.parametrize("how", ["failover", "kill_master"])
def test_a_failover_in_the_middle_of_consuming_loses_nothing(make_sentinel, unique_name, how):
    fleet = make_sentinel(sentinels=3, durable=True)
    with connect(fleet) as connection:
        publish(connection, unique_name, range(MESSAGES))
    fleet.wait_for_the_replica()
    with connect(fleet, lease=2) as connection:
        worker = Worker(connection, unique_name)
        thread = running(worker)
        worker.pace.release(50)
        wait_until(lambda: len(worker.seen) >= 50, "the first fifty")
        fleet.wait_for_the_replica()
        after = getattr(fleet, how)()
        worker.pace.release(3 * MESSAGES)
        try:
            wait_until(lambda: len(worker.seen) == MESSAGES, "every message")
        finally:
            worker.should_stop = True
            thread.join(60)
    again = sum(worker.seen.values()) - MESSAGES
    assert again <= 16  # at most what was in hand: two fetches of eight
    wait_until(lambda: held(after.client()) == 0, "nothing to be held")
    assert after.client().llen(unique_name) == 0


def test_publishing_finds_the_new_master(make_sentinel, unique_name):
    fleet = make_sentinel()
    with connect(fleet) as connection:
        producer = Producer(connection)
        producer.publish("before", routing_key=unique_name)
        after = fleet.failover()
        policy = {"max_retries": 20, "interval_start": 0, "interval_step": 0.2, "interval_max": 1}
        producer.publish("after", routing_key=unique_name, retry=True, retry_policy=policy)
        with consuming(connection, unique_name) as inbox:
            assert inbox.wait(2) == ["before", "after"]
    assert after.client().llen(unique_name) == 0


def test_a_worker_outlives_a_failover_and_is_steered_after_it(
    make_sentinel, redis_broker, raw, unique_name, tmp_path
):
    """In Celery's loop a lost Redis is no error: the transport finds the new master by itself."""
    fleet = make_sentinel(sentinels=3, durable=True)
    options = {"master_name": MASTER, "socket_timeout": 2, "socket_connect_timeout": 2, "lease": 3}
    site = Site(fleet.url, unique_name, tmp_path / "log", journal=redis_broker, **options)
    retry = {"max_retries": 20, "interval_start": 0, "interval_step": 0.2, "interval_max": 1}

    def ran():
        return {text.decode() for text in raw.lrange(f"{unique_name}-ran", 0, -1)}

    with site.app(OURS) as app:
        for number in range(MESSAGES):
            app.send_task("note", [f"n{number}", 0.01])
        with site.worker(OURS) as process:
            wait_until(lambda: len(ran()) >= 20, "the first twenty")
            fleet.wait_for_the_replica()
            after = fleet.failover()
            app.send_task("note", ["after"], retry=True, retry_policy=retry)
            wait_until(lambda: len(ran()) == MESSAGES + 1, "every task")
            answer = wait_until(
                lambda: app.control.ping(destination=[site.host], timeout=2, limit=1), "a pong"
            )
            assert answer == [{site.host: {"ok": "pong"}}]
            assert process.poll() is None
            assert "Connection to broker lost" not in site.text()
    assert "after" in ran()
    assert held(after.client()) == 0
