"""Programs on angzarr's Redis transport and on kombu's own work on the same queues."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter

import pytest
from kombu import Exchange, Producer, Queue
from tests.adapters.redis_sides import (
    OURS,
    STOCK,
    both_ways,
    connect,
    consuming,
    held,
    publish,
)

from polling import PATIENCE

TEXT = {"text": "žluťoučký \u2603 \U0001f40e", "n": 1.5, "none": None, "list": [1, {"a": "b"}]}


@both_ways
@pytest.mark.parametrize("priority", [0, 6])
@pytest.mark.parametrize("compression", [None, "zlib"])
def test_a_message_crosses_whole(redis_broker, unique_name, one, other, priority, compression):
    sent = {
        "headers": {"id": "h", "nested": {"x": [1, 2]}},
        "correlation_id": "c-1",
        "reply_to": "answers",
        "message_id": "m-1",
        "expiration": 60,
    }
    with connect(redis_broker, one) as writer, connect(redis_broker, other) as reader:
        publish(writer, unique_name, [TEXT], priority=priority, compression=compression, **sent)
        with consuming(reader, unique_name) as inbox:
            assert inbox.wait(1) == [TEXT]
            message = inbox.messages[0]
    assert sent["headers"].items() <= message.headers.items()
    for name in ("correlation_id", "reply_to", "message_id", "priority"):
        assert message.properties[name] == {**sent, "priority": priority}[name]
    assert message.properties["expiration"] == "60000"
    assert message.delivery_info == {"exchange": "", "routing_key": unique_name}
    assert message.content_type == "application/json"


@both_ways
def test_bytes_cross_unchanged(redis_broker, unique_name, one, other):
    body = bytes(range(256)) * 40
    with connect(redis_broker, one) as writer, connect(redis_broker, other) as reader:
        publish(writer, unique_name, [body])
        with consuming(reader, unique_name) as inbox:
            assert inbox.wait(1) == [body]


def test_what_is_written_is_the_same(redis_broker, raw, unique_name):
    written = []
    for side in (OURS, STOCK):
        with connect(redis_broker, side) as writer:
            publish(writer, unique_name, [TEXT], priority=3, headers={"h": 1}, reply_to="r")
        envelope = json.loads(raw.rpop(f"{unique_name}\x06\x163"))
        assert len(envelope["properties"].pop("delivery_tag")) == 36
        written.append(envelope)
    assert written[0] == written[1]


@both_ways
@pytest.mark.parametrize("kind", ["direct", "topic"])
def test_a_queue_bound_by_one_gets_what_the_other_publishes(
    redis_broker, unique_name, one, other, kind
):
    exchange = Exchange(f"{unique_name}-x", kind)
    pattern = "order.*" if kind == "topic" else "order.placed"
    with connect(redis_broker, one) as binder, connect(redis_broker, other) as writer:
        Queue(unique_name, exchange, pattern)(binder.default_channel).declare()
        producer = Producer(writer, exchange)
        producer.publish("unbound", routing_key="other.placed")
        producer.publish("bound", routing_key="order.placed")
        with consuming(writer, Queue(unique_name, exchange, pattern)) as inbox:
            assert inbox.wait(1) == ["bound"]
            assert inbox.rest() == ["bound"]


@pytest.mark.parametrize("prefetch", [1, 8])
def test_both_consume_one_queue_and_nobody_gets_a_message_twice(
    redis_broker, raw, unique_name, prefetch
):
    number = 400
    got: dict[str, list[int]] = {OURS: [], STOCK: []}
    ready = threading.Barrier(3, timeout=60)

    def consume(side):
        with (
            connect(redis_broker, side) as connection,
            consuming(connection, unique_name, prefetch=prefetch) as inbox,
        ):
            inbox.turn()
            ready.wait()
            deadline = time.monotonic() + PATIENCE
            while sum(map(len, got.values())) < number and time.monotonic() < deadline:
                inbox.turn()
                got[side] = inbox.bodies

    threads = [threading.Thread(target=consume, args=(side,), daemon=True) for side in got]
    for thread in threads:
        thread.start()
    ready.wait()
    with connect(redis_broker, OURS) as ours, connect(redis_broker, STOCK) as stock:
        publish(ours, unique_name, range(0, number, 2))
        publish(stock, unique_name, range(1, number, 2))
    for thread in threads:
        thread.join(60)
    assert Counter(got[OURS] + got[STOCK]) == dict.fromkeys(range(number), 1)
    assert got[OURS]
    assert got[STOCK]
    assert raw.llen(unique_name) == 0
    assert held(raw) == 0


def test_an_idle_queue_feeds_both(redis_broker, unique_name):
    """Each message is sent to two consumers that wait: neither way of waiting starves the other."""
    with (
        connect(redis_broker, OURS) as ours,
        connect(redis_broker, STOCK) as stock,
        consuming(ours, unique_name) as left,
        consuming(stock, unique_name) as right,
    ):
        for number in range(30):
            publish(stock, unique_name, [number])
            deadline = time.monotonic() + PATIENCE
            while len(left.messages) + len(right.messages) <= number:
                assert time.monotonic() < deadline
                left.turn()
                right.turn()
        assert sorted(left.bodies + right.bodies) == list(range(30))


def test_what_a_killed_stock_worker_left_is_given_back_by_the_stock_rule(
    redis_broker, raw, unique_name
):
    with connect(redis_broker, STOCK) as killed:
        publish(killed, unique_name, ["old", "young"])
        with consuming(killed, unique_name, ack=False) as inbox:
            inbox.wait(2)
            inbox.channel.do_restore = False  # as a killed worker: nothing is put back
    assert held(raw) == 2
    old, young = raw.zrange("unacked_index", 0, -1)
    raw.zadd("unacked_index", {old: time.time() - 3601})
    with (
        connect(redis_broker, OURS, unacked_restore_throttle=1) as reader,
        consuming(reader, unique_name) as inbox,
    ):
        assert inbox.wait(1) == ["old"]
        assert inbox.messages[0].headers["redelivered"] is True
        assert inbox.rest() == ["old"]
    assert raw.zrange("unacked_index", 0, -1) == [young]


@both_ways
def test_fanout_crosses(redis_broker, unique_name, one, other):
    exchange = Exchange(unique_name, "fanout")
    with connect(redis_broker, one) as writer, connect(redis_broker, other) as reader:
        producer = Producer(writer, exchange)
        with consuming(reader, Queue(f"{unique_name}-q", exchange), no_ack=True) as inbox:
            while not inbox.messages:  # until it is subscribed
                producer.publish("knock")
                inbox.turn(0.02)
            for number in range(20):
                producer.publish(number)
            while inbox.wait(1)[-1] != 19:
                inbox.turn(1)
            assert [body for body in inbox.bodies if body != "knock"] == list(range(20))


@both_ways
def test_a_broadcast_reaches_consumers_of_both_sides(redis_broker, unique_name, one, other):
    exchange = Exchange(unique_name, "fanout")
    with (
        connect(redis_broker, one) as left,
        connect(redis_broker, other) as right,
        consuming(left, Queue(f"{unique_name}-1", exchange), no_ack=True) as first,
        consuming(right, Queue(f"{unique_name}-2", exchange), no_ack=True) as second,
    ):
        producer = Producer(left, exchange)
        deadline = time.monotonic() + PATIENCE
        while not (first.messages and second.messages):
            assert time.monotonic() < deadline
            producer.publish("knock")
            first.turn(0.02)
            second.turn(0.02)
        producer.publish("heard")
        while first.bodies[-1] != "heard" or second.bodies[-1] != "heard":
            assert time.monotonic() < deadline
            first.turn(0.02)
            second.turn(0.02)
        assert first.bodies.count("heard") == second.bodies.count("heard") == 1
