"""What is done to queues: declare, count, purge, get, expire, delete; as with kombu's own."""

from __future__ import annotations

from queue import Empty

import pytest
from kombu import Exchange, Producer, Queue
from kombu.exceptions import ChannelError
from tests.adapters.redis_sides import OURS, connect, consuming, each_side, held, publish

from redis_servers import wait_until


@each_side
def test_the_count_is_of_all_priorities_and_of_nothing_taken(redis_broker, raw, unique_name, side):
    with connect(redis_broker, side) as connection, connection.channel() as channel:
        publish(connection, unique_name, range(5))
        publish(connection, unique_name, range(2), priority=9)
        assert channel.queue_declare(unique_name, passive=True).message_count == 7
        assert raw.llen(unique_name) == 5  # what KEDA asks
        with consuming(connection, unique_name, prefetch=3, ack=False) as inbox:
            inbox.wait(3)
            assert channel.queue_declare(unique_name, passive=True).message_count == 4
            assert raw.llen(unique_name) == 2
        assert channel.queue_declare(unique_name, passive=True).message_count == 7


@each_side
def test_a_queue_without_messages_is_not_found(redis_broker, unique_name, side):
    with (
        connect(redis_broker, side) as connection,
        connection.channel() as channel,
        pytest.raises(ChannelError, match=f"no queue '{unique_name}'"),
    ):
        channel.queue_declare(unique_name, passive=True)


@each_side
def test_purge_takes_every_priority_and_leaves_what_is_taken(redis_broker, raw, unique_name, side):
    with connect(redis_broker, side) as connection, connection.channel() as channel:
        publish(connection, unique_name, range(4))
        publish(connection, unique_name, range(3), priority=6)
        with consuming(connection, unique_name, prefetch=1, ack=False) as inbox:
            inbox.wait(1)
            assert channel.queue_purge(unique_name) == 6
            assert channel.queue_purge(unique_name) == 0
            assert held(raw) == 1
        assert raw.llen(unique_name) == 1


@each_side
def test_delete_removes_messages_and_bindings(redis_broker, raw, unique_name, side):
    exchange = Exchange(f"{unique_name}-x", "direct")
    with connect(redis_broker, side) as connection:
        queue = Queue(unique_name, exchange, "key")(connection.default_channel)
        queue.declare()
        publish(connection, unique_name, range(3), priority=3)
        assert queue.delete(if_empty=True) is None
        assert raw.llen(f"{unique_name}\x06\x163") == 3
        queue.delete()
        assert list(raw.scan_iter(f"*{unique_name}*")) == []


@each_side
def test_get_takes_one_message_the_most_urgent_first(redis_broker, raw, unique_name, side):
    with connect(redis_broker, side) as connection, connection.channel() as channel:
        publish(connection, unique_name, ["slow"], priority=9)
        publish(connection, unique_name, ["quick"])
        message = channel.basic_get(unique_name)
        assert message.payload == "quick"
        assert held(raw) == 1
        message.ack()
        assert held(raw) == 0
        assert channel.basic_get(unique_name, no_ack=True).payload == "slow"
        assert held(raw) == 0
        assert channel.basic_get(unique_name) is None


@each_side
def test_what_was_got_and_not_acknowledged_goes_back(redis_broker, unique_name, side):
    with connect(redis_broker, side) as connection:
        publish(connection, unique_name, ["first", "second"])
        with connection.channel() as channel:
            channel.basic_get(unique_name)
        with connection.channel() as channel:
            again = channel.basic_get(unique_name)
            assert again.payload == "first"
            assert again.headers["redelivered"] is True


@each_side
@pytest.mark.parametrize("no_ack", [False, True])
def test_a_simple_queue(redis_broker, raw, unique_name, side, no_ack):
    with (
        connect(redis_broker, side) as connection,
        connection.SimpleQueue(unique_name, no_ack=no_ack) as queue,
    ):
        queue.put({"n": 1})
        queue.put({"n": 2})
        assert queue.qsize() == 2
        message = queue.get(timeout=60)
        assert message.payload == {"n": 1}
        if not no_ack:
            message.ack()
        assert queue.get(timeout=60).payload == {"n": 2}
        with pytest.raises(Empty):
            queue.get_nowait()
        with pytest.raises(Empty):
            queue.get(timeout=0.05)
        queue.put({"n": 3})
        assert queue.clear() == 1
    assert held(raw) == 0


@each_side
@pytest.mark.parametrize("priority", [0, 9])
def test_an_expiring_queue_ends_when_nobody_uses_it(redis_broker, raw, unique_name, side, priority):
    queue = Queue(unique_name, expires=0.5)
    with connect(redis_broker, side) as connection, connection.channel() as channel:
        Producer(channel).publish("x", routing_key=queue.name, declare=[queue], priority=priority)
        assert channel.queue_declare(unique_name, passive=True).message_count == 1
        (key,) = raw.scan_iter(f"{unique_name}*")
        assert 0 < raw.pttl(key) <= 500
        wait_until(lambda: not raw.exists(key), "the queue to expire")


@each_side
def test_use_keeps_an_expiring_queue_alive(redis_broker, raw, unique_name, side):
    queue = Queue(unique_name, expires=60)
    with connect(redis_broker, side) as connection, connection.channel() as channel:
        producer = Producer(channel)
        producer.publish("x", routing_key=queue.name, declare=[queue])
        producer.publish("y", routing_key=queue.name, declare=[queue])
        raw.pexpire(unique_name, 5000)
        assert channel.basic_get(unique_name, no_ack=True).payload == "x"
        assert raw.pttl(unique_name) > 50_000
        raw.pexpire(unique_name, 5000)
        producer.publish("z", routing_key=queue.name)
        assert raw.pttl(unique_name) > 50_000


@each_side
def test_declared_again_without_expiry_a_queue_stays(redis_broker, raw, unique_name, side):
    with connect(redis_broker, side) as connection, connection.channel() as channel:
        Queue(unique_name, expires=60)(channel).declare()
        Queue(unique_name)(channel).declare()
        Producer(channel).publish("x", routing_key=unique_name)
        assert raw.pttl(unique_name) == -1


@each_side
def test_what_expires_is_consumed_like_any_other(redis_broker, raw, unique_name, side):
    queue = Queue(unique_name, Exchange(f"{unique_name}-x", "direct"), "k", expires=60)
    with connect(redis_broker, side) as connection:
        with consuming(connection, queue, prefetch=2) as inbox:
            Producer(connection, queue.exchange).publish("x", routing_key="k")
            assert inbox.wait(1) == ["x"]
        assert raw.zscore("_kombu.binding_deadlines", f"{unique_name}-x") is not None


@each_side
def test_an_auto_delete_queue_of_a_fanout_leaves_no_binding(redis_broker, raw, unique_name, side):
    exchange = Exchange(unique_name, "fanout")
    queue = Queue(f"{unique_name}-q", exchange, auto_delete=True)
    with connect(redis_broker, side) as connection:
        with consuming(connection, queue, no_ack=True) as inbox:
            inbox.turn(0.01)
            assert raw.scard(f"_kombu.binding.{unique_name}") == 1
        assert raw.exists(f"_kombu.binding.{unique_name}") == 0


@each_side
def test_an_unbound_routing_key_is_dropped_or_goes_to_the_deadletter_queue(
    redis_broker, raw, unique_name, side
):
    exchange = Exchange(f"{unique_name}-x", "direct")
    with connect(redis_broker, side) as connection:
        producer = Producer(connection, exchange)
        producer.publish("dropped", routing_key="nobody")
        assert list(raw.scan_iter(f"{unique_name}*")) == []
    options = {"deadletter_queue": unique_name}
    with connect(redis_broker, side, **options) as connection:
        producer = Producer(connection, exchange)
        with pytest.warns(match="could not be delivered"):
            producer.publish("kept", routing_key="nobody")
    assert raw.llen(unique_name) == 1


def test_a_message_given_back_to_an_expired_queue_is_not_lost(redis_broker, raw, unique_name):
    queue = Queue(unique_name, expires=0.2)
    with connect(redis_broker, OURS) as connection:
        with consuming(connection, queue, ack=False, prefetch=2) as inbox:
            for body in "abc":
                Producer(inbox.channel).publish(body, routing_key=unique_name)
            inbox.wait(2)
            wait_until(lambda: not raw.exists(unique_name), "the queue to expire")
        assert raw.llen(unique_name) == 2
