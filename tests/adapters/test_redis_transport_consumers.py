"""Consumers: how much they are given, and what may be changed while they work."""

from __future__ import annotations

import threading
import time

import pytest
import redis
from kombu import Consumer, Queue
from tests.adapters.redis_sides import connect, consuming, each_side, held, publish

from adapters.redis_loop import looped
from angzarr.adapters.redis import fetcher, poller
from angzarr.adapters.redis.damaged import Damaged
from angzarr.adapters.redis.keyspace_listener import KeyspaceListener
from lateness import lateness


@each_side
@pytest.mark.parametrize("prefetch", [1, 5])
def test_no_more_is_given_than_the_prefetch_limit(redis_broker, raw, unique_name, side, prefetch):
    with connect(redis_broker, side) as connection:
        publish(connection, unique_name, range(20))
        with consuming(connection, unique_name, prefetch=prefetch, ack=False) as inbox:
            inbox.wait(prefetch)
            assert inbox.rest() == list(range(prefetch))
            assert held(raw) == prefetch
            assert raw.llen(unique_name) == 20 - prefetch
            inbox.messages[0].ack()
            assert inbox.wait(prefetch + 1) == list(range(prefetch + 1))
            assert inbox.rest() == list(range(prefetch + 1))


@each_side
def test_a_raised_prefetch_limit_lets_more_in(redis_broker, unique_name, side):
    with connect(redis_broker, side) as connection:
        publish(connection, unique_name, range(20))
        with consuming(connection, unique_name, prefetch=2, ack=False) as inbox:
            inbox.wait(2)
            inbox.consumer.qos(prefetch_count=6)
            inbox.wait(6)
            assert inbox.rest() == list(range(6))


@each_side
def test_channels_of_one_connection_have_limits_of_their_own(redis_broker, unique_name, side):
    first, second = f"{unique_name}-1", f"{unique_name}-2"
    with connect(redis_broker, side) as connection:
        publish(connection, first, range(9))
        publish(connection, second, range(9))
        with (
            consuming(connection, first, prefetch=2, ack=False) as left,
            consuming(connection, second, prefetch=4, ack=False) as right,
        ):
            while len(left.messages) + len(right.messages) < 6:
                left.turn(5)
            left.rest()
            assert (left.bodies, right.bodies) == ([0, 1], [0, 1, 2, 3])


@each_side
def test_consumers_with_and_without_acknowledgements_share_a_channel(
    redis_broker, raw, unique_name, side
):
    careful, careless = f"{unique_name}-1", f"{unique_name}-2"
    with connect(redis_broker, side) as connection:
        publish(connection, careful, range(5))
        publish(connection, careless, range(5))
        with consuming(connection, careful, ack=False, prefetch=10) as inbox:
            channel = inbox.channel
            other = Consumer(
                channel, [Queue(careless)], on_message=inbox.messages.append, no_ack=True
            )
            other.consume()
            inbox.wait(10)
            assert held(raw) == 5
        assert raw.llen(careful) == 5
        assert raw.llen(careless) == 0


@each_side
def test_a_cancelled_consumer_gets_no_more_and_keeps_what_it_has(
    redis_broker, raw, unique_name, side
):
    with connect(redis_broker, side) as connection:
        publish(connection, unique_name, range(3))
        with consuming(connection, unique_name, ack=False, prefetch=3) as inbox:
            inbox.wait(3)
            inbox.consumer.cancel()
            publish(connection, unique_name, ["later"])
            assert inbox.rest() == [0, 1, 2]
            assert held(raw) == 3
            for message in inbox.messages:
                message.ack()
            assert held(raw) == 0
        assert raw.llen(unique_name) == 1


@each_side
def test_a_queue_may_be_added_to_a_consumer_at_work(redis_broker, unique_name, side):
    first, second = f"{unique_name}-1", f"{unique_name}-2"
    with connect(redis_broker, side) as connection:
        publish(connection, first, ["a"])
        publish(connection, second, ["b"])
        with consuming(connection, first) as inbox:
            assert inbox.wait(1) == ["a"]
            inbox.consumer.add_queue(Queue(second))
            inbox.consumer.consume()
            assert inbox.wait(2) == ["a", "b"]
            inbox.consumer.cancel_by_queue(first)
            publish(connection, first, ["c"])
            publish(connection, second, ["d"])
            assert inbox.wait(3) == ["a", "b", "d"]
            assert inbox.rest() == ["a", "b", "d"]


@each_side
def test_an_error_of_the_application_leaves_the_message_with_the_consumer(
    redis_broker, raw, unique_name, side
):
    with connect(redis_broker, side) as connection:
        publish(connection, unique_name, [1, 2])
        with consuming(connection, unique_name, ack=False, prefetch=2) as inbox:

            def fail(message):
                inbox.messages.append(message)
                raise ZeroDivisionError

            inbox.consumer.on_message = fail
            inbox.consumer.consume()
            with pytest.raises(ZeroDivisionError):
                inbox.wait(1)
            inbox.consumer.on_message = inbox.messages.append
            inbox.wait(2)
            assert held(raw) == 2
        assert raw.llen(unique_name) == 2


# -- where Redis rings no bell ----------------------------------------------------------------


@pytest.fixture
def no_bell(monkeypatch):
    """Let Redis refuse to track what is read, as it does where the user has no right to it."""

    def refuse(*_):
        raise redis.ResponseError("NOPERM this user has no permissions to run 'client|tracking'")

    monkeypatch.setattr(KeyspaceListener, "_track", refuse)


#: Seconds; a look every 0.1 s is the promise, one every 5 s is what there is with a bell.
SOON = 1.0


@pytest.mark.usefixtures("no_bell")
def test_without_a_bell_an_idle_loop_looks_often(redis_broker, unique_name):
    with connect(redis_broker) as writer, looped(redis_broker, unique_name, ack=True) as worker:
        worker.rest(0.3)
        for count in range(1, 6):
            publish(writer, unique_name, [count])
            with lateness() as late:
                published = time.monotonic()
                while len(worker.messages) < count:
                    worker.turn(5)  # it wakes by itself or not at all
                took = time.monotonic() - published
            assert took < SOON + late.seconds


@pytest.mark.usefixtures("no_bell")
def test_without_a_bell_a_loop_goes_on_looking_for_room(redis_broker, unique_name, monkeypatch):
    """A thread makes room where damaged messages were handed over, and wakes nobody."""

    freed = []

    def free():
        monkeypatch.setattr(Damaged, "is_full", False)
        freed.append(time.monotonic())

    with connect(redis_broker) as writer, looped(redis_broker, unique_name) as worker:
        worker.rest(0.2)
        for count in range(1, 5):
            monkeypatch.setattr(Damaged, "is_full", True)
            publish(writer, unique_name, [count])
            worker.rest(0.2)
            timer = threading.Timer(0.1, free)
            with lateness() as late:
                timer.start()
                while len(worker.messages) < count:
                    worker.turn(5)
                took = time.monotonic() - freed[-1]
            assert took < SOON + late.seconds
            timer.join()


@pytest.mark.parametrize("let_go", ["ack", "reject", "requeue"])
def test_who_waits_in_drain_events_hears_that_another_thread_made_room(
    redis_broker, unique_name, monkeypatch, let_go
):
    """As in a gevent worker, whose greenlets acknowledge while its consumer waits."""
    monkeypatch.setattr(poller, "LONGEST_WAIT", 300.0)
    monkeypatch.setattr(fetcher, "SAFETY_LOOK", 300.0)
    with connect(redis_broker, lease=3600) as connection:
        publish(connection, unique_name, range(10))
        with consuming(connection, unique_name, prefetch=1, ack=False) as inbox:
            for n in range(1, 11):
                while len(inbox.messages) < n:
                    connection.drain_events(timeout=120)
                timer = threading.Timer(0.05, getattr(inbox.messages[-1], let_go))
                timer.start()
            timer.join()
        made_room = {"requeue": {0}}.get(let_go, set(range(10)))
        assert made_room <= set(inbox.bodies)


@pytest.mark.usefixtures("no_bell")
def test_without_a_bell_drain_events_looks_often(redis_broker, unique_name):

    published = []

    def publish_later():
        with connect(redis_broker) as connection:
            published.append(time.monotonic())
            publish(connection, unique_name, [1])

    with connect(redis_broker) as connection, consuming(connection, unique_name) as inbox:
        inbox.rest()
        timer = threading.Timer(0.2, publish_later)
        with lateness() as late:
            timer.start()
            inbox.wait(1)
            took = time.monotonic() - published[0]
        assert took < SOON + late.seconds
        timer.join()
