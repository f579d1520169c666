"""Producer.batch: many publishes in one round trip, all of them or an error, never twice."""

from __future__ import annotations

import time
from urllib.parse import urlsplit

import pytest
from kombu import Exchange, Producer, Queue
from kombu.exceptions import BatchPublishError
from tests.adapters.redis_sides import OURS, connect, consuming, each_side
from tools.tcp_proxy import LossyProxy

from polling import PATIENCE


def send(producer, queue, bodies, *, then_fail=False, **options):
    with producer.batch(**options):
        for body in bodies:
            producer.publish(body, routing_key=queue)
        if then_fail:
            raise ZeroDivisionError


@each_side
def test_a_batch_is_sent_when_it_ends(redis_broker, raw, unique_name, side):
    with connect(redis_broker, side) as connection:
        producer = Producer(connection)
        assert producer.supports_batch_publish
        with producer.batch():
            for number in range(50):
                producer.publish(number, routing_key=unique_name)
            assert raw.llen(unique_name) == 0
        assert raw.llen(unique_name) == 50
        with consuming(connection, unique_name) as inbox:
            assert inbox.wait(50) == list(range(50))


@each_side
def test_a_full_batch_is_sent_at_once(redis_broker, raw, unique_name, side):
    with connect(redis_broker, side) as connection:
        producer = Producer(connection)
        with producer.batch(max_size=10) as batch:
            for number in range(25):
                producer.publish(number, routing_key=unique_name)
            assert raw.llen(unique_name) == 20
            batch.flush()
            assert raw.llen(unique_name) == 25


@each_side
def test_an_error_in_a_batch_drops_what_was_not_sent(redis_broker, raw, unique_name, side):
    with connect(redis_broker, side) as connection:
        producer = Producer(connection)
        with pytest.raises(ZeroDivisionError):
            send(producer, unique_name, range(3), then_fail=True, max_size=2)
        assert raw.llen(unique_name) == 2
        producer.publish("after", routing_key=unique_name)
        assert raw.llen(unique_name) == 3


@each_side
def test_a_batch_holds_priorities_prefixes_expiries_and_broadcasts(
    redis_broker, raw, unique_name, side
):
    everyone = Exchange(f"{unique_name}-all", "fanout")
    expiring = Queue("e", expires=60)
    with connect(redis_broker, side, global_keyprefix=f"{unique_name}:") as connection:
        producer = Producer(connection)
        heard = Queue("mine", everyone)
        with consuming(connection, heard, no_ack=True) as inbox:
            deadline = time.monotonic() + PATIENCE
            while not inbox.messages:
                assert time.monotonic() < deadline
                with producer.batch():
                    producer.publish("all", exchange=everyone, declare=[everyone])
                inbox.turn()
        with producer.batch():
            producer.publish("last", routing_key="q", priority=9)
            producer.publish("first", routing_key="q")
            producer.publish("e", routing_key="e", declare=[expiring])
        assert 0 < raw.pttl(f"{unique_name}:e") <= 60_000
        with consuming(connection, "q") as inbox:
            assert inbox.wait(2) == ["first", "last"]


@each_side
def test_an_idle_consumer_is_woken_by_a_batch(redis_broker, unique_name, side):
    with (
        connect(redis_broker, side) as connection,
        consuming(connection, unique_name, prefetch=10) as inbox,
    ):
        inbox.turn()
        producer = Producer(connection)
        with producer.batch():
            for number in range(30):
                producer.publish(number, routing_key=unique_name)
        assert inbox.wait(30) == list(range(30))


@each_side
def test_a_batch_whose_answer_is_lost_is_an_error_and_never_sent_twice(
    redis_broker, raw, unique_name, side
):
    address = urlsplit(redis_broker)
    with LossyProxy(address.hostname, address.port) as proxy:
        url = address._replace(netloc=f"127.0.0.1:{proxy.port}").geturl()
        with connect(url, side) as connection:
            producer = Producer(connection)
            proxy.lose_replies(b"LPUSH")
            with pytest.raises(BatchPublishError):
                send(producer, unique_name, range(10))
    with connect(redis_broker, OURS) as connection, consuming(connection, unique_name) as inbox:
        assert inbox.rest() == list(range(10))


@each_side
def test_with_retries_a_batch_is_sent_one_by_one(redis_broker, raw, unique_name, side):
    with connect(redis_broker, side, retry_on_timeout=True) as connection:
        producer = Producer(connection)
        assert not producer.supports_batch_publish
        with producer.batch():
            producer.publish(1, routing_key=unique_name)
            assert raw.llen(unique_name) == 1
