"""Envelopes that nobody can read: kept byte for byte, and in nobody's way."""

from __future__ import annotations

import json
import threading

import pytest
from tests.adapters.redis_sides import OURS, connect, consuming, held, publish

from adapters.redis_loop import looped
from angzarr.adapters.redis.channel import MOST_A_STEP
from angzarr.adapters.redis.damaged import ENOUGH_IN_HAND
from angzarr.errors import LetterTooLarge
from redis_servers import wait_until


def envelope(**properties) -> dict:
    """A good envelope as kombu writes it, with other *properties*; None removes one."""
    usual = {
        "body_encoding": "base64",
        "delivery_info": {"exchange": "", "routing_key": "q"},
        "delivery_mode": 2,
        "delivery_tag": "3f7f42d0-3a8d-4e0a-8c4a-3f0a8ad4ee43",
        "priority": 0,
    }
    kept = {key: value for key, value in (usual | properties).items() if value is not None}
    return {
        "body": "eyJhIjogMX0=",
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {},
        "properties": kept,
    }


def text(**changes) -> bytes:
    return json.dumps(envelope() | changes).encode()


DAMAGED = {
    "empty": b"",
    "not JSON": b"{not json",
    "cut short": text()[:-20],
    "not UTF-8": b'{"body": "\xff\xfe"}',
    "bytes": bytes(range(256)),
    "null": b"null",
    "a number": b"17",
    "a list": b"[1, 2]",
    "a string": b'"text"',
    "nothing in it": b"{}",
    "deeper than the stack": b"[" * 200_000,
    "no properties": json.dumps({"body": "eyJhIjogMX0=", "headers": {}}).encode(),
    "properties that are none": text(properties=[1]),
    "no delivery tag": json.dumps(envelope(delivery_tag=None)).encode(),
    "no delivery info": json.dumps(envelope(delivery_info=None)).encode(),
    "a delivery info that is none": json.dumps(envelope(delivery_info="q")).encode(),
    "no routing key": json.dumps(envelope(delivery_info={"exchange": ""})).encode(),
    "bad base64": text(body="e!@#"),
    "base64 of a wrong length": text(body="abcde"),
    "a body that is a number": text(body=17),
    "a body that is an object": text(body={"a": 1}),
    "an unknown body encoding": json.dumps(envelope(body_encoding="rot13")).encode(),
    "a type nobody knows": json.dumps(
        envelope() | {"headers": {"x": {"__type__": "nobody", "__value__": 1}}}
    ).encode(),
    "a broken date": json.dumps(
        envelope() | {"headers": {"x": {"__type__": "datetime", "__value__": "17:99"}}}
    ).encode(),
}
DAMAGED |= {
    "a decimal that is none": json.dumps(
        envelope() | {"headers": {"x": {"__type__": "decimal", "__value__": "x"}}}
    ).encode(),
    "a priority that is text": json.dumps(envelope(priority="high")).encode(),
    "a priority that is a truth": json.dumps(envelope(priority=True)).encode(),
    "a routing key that is a number": json.dumps(
        envelope(delivery_info={"exchange": "", "routing_key": 5})
    ).encode(),
    "an exchange that is an object": json.dumps(
        envelope(delivery_info={"exchange": {}, "routing_key": "q"})
    ).encode(),
    "a correlation id that is a list": json.dumps(envelope(correlation_id=[1])).encode(),
    "headers that are a list": text(headers=[1]),
    "a content type that is a number": text(**{"content-type": 5}),
    "too many values in its headers": text(headers={"x": [[]] * 20_000}),
    "too many levels in its headers": text(headers={"x": "y"}).replace(
        b'"y"', b"[" * 200 + b"]" * 200
    ),
}
each_damage = pytest.mark.parametrize("damaged", DAMAGED.values(), ids=DAMAGED.keys())


@each_damage
@pytest.mark.parametrize("no_ack", [False, True], ids=["ack", "no_ack"])
def test_it_is_set_aside_and_the_good_one_behind_it_is_consumed(
    redis_broker, raw, unique_name, damaged, no_ack
):
    raw.lpush(unique_name, damaged)
    with connect(redis_broker) as connection:
        publish(connection, unique_name, ["good"])
        with consuming(connection, unique_name, prefetch=1, no_ack=no_ack) as inbox:
            assert inbox.wait(1) == ["good"]
            assert inbox.rest(0.05) == ["good"]
        assert raw.lrange(f"angzarr:damaged:{unique_name}", 0, -1) == [damaged]
    assert raw.llen(unique_name) == 0
    assert held(raw) == 0


@each_damage
def test_basic_get_passes_over_it(redis_broker, raw, unique_name, damaged):
    raw.lpush(unique_name, damaged)
    with connect(redis_broker) as connection, connection.channel() as channel:
        publish(connection, unique_name, ["good"])
        message = channel.basic_get(unique_name)
        assert message.payload == "good"
        message.ack()
        assert raw.lrange(f"angzarr:damaged:{unique_name}", 0, -1) == [damaged]
    assert held(raw) == 0


@each_damage
@pytest.mark.parametrize("no_ack", [False, True], ids=["ack", "no_ack"])
def test_on_damaged_gets_it_as_it_is(redis_broker, raw, unique_name, damaged, no_ack):
    told, done = [], threading.Event()

    def on_damaged(*what):
        told.append(what)
        done.set()

    raw.lpush(unique_name, damaged)
    with connect(redis_broker, on_damaged=on_damaged) as connection:
        publish(connection, unique_name, ["good"])
        with consuming(connection, unique_name, no_ack=no_ack) as inbox:
            assert inbox.wait(1) == ["good"]
            assert done.wait(60)
            wait_until(lambda: held(raw) == 0, "it to be let go")
    ((data, queue, error),) = told
    assert (data, queue) == (damaged, unique_name)
    assert isinstance(error, Exception)
    assert str(error)
    assert raw.keys("angzarr:damaged:*") == []


def test_many_in_a_row_do_not_use_up_the_prefetch(redis_broker, raw, unique_name):
    rows = [b"damaged %d" % n for n in range(200)]
    raw.lpush(unique_name, *rows)
    with connect(redis_broker) as connection:
        publish(connection, unique_name, ["good"])
        with consuming(connection, unique_name, prefetch=2) as inbox:
            assert inbox.wait(1) == ["good"]
        assert raw.lrange(f"angzarr:damaged:{unique_name}", 0, -1) == rows[::-1]


def test_while_on_damaged_fails_it_is_held_and_then_tried_again(redis_broker, raw, unique_name):
    tries, well = [], threading.Event()

    def on_damaged(data, _queue, _error):
        tries.append(data)
        if not well.is_set():
            raise ConnectionError("the letters' queue is away")

    raw.lpush(unique_name, b"damaged")
    with connect(redis_broker, on_damaged=on_damaged) as connection:
        publish(connection, unique_name, ["good"])
        with consuming(connection, unique_name) as inbox:
            assert inbox.wait(1) == ["good"]
            wait_until(lambda: len(tries) >= 2, "a second try")
            assert held(raw) == 1
            well.set()
            wait_until(lambda: held(raw) == 0, "it to be let go")
    assert set(tries) == {b"damaged"}
    assert raw.llen(unique_name) == 0


@pytest.mark.parametrize("no_ack", [False, True], ids=["ack", "no_ack"])
def test_what_is_too_large_for_a_letter_is_set_aside_and_holds_no_place(
    redis_broker, raw, unique_name, no_ack, caplog
):
    def on_damaged(_data, _queue, _error):
        raise LetterTooLarge("the queue takes at most 1 MiB")

    rows = [b"damaged %d" % n for n in range(ENOUGH_IN_HAND + 1)]
    raw.lpush(unique_name, *rows)
    place = f"angzarr:damaged:{unique_name}"
    with connect(redis_broker, on_damaged=on_damaged) as connection:
        publish(connection, unique_name, ["good"])
        with consuming(connection, unique_name, no_ack=no_ack) as inbox:
            assert inbox.wait(1) == ["good"]
            wait_until(lambda: raw.llen(place) == len(rows), "all to be set aside")
            wait_until(lambda: held(raw) == 0, "them to be let go")
    assert sorted(raw.lrange(place, 0, -1)) == sorted(rows)
    assert "the queue takes at most 1 MiB" in caplog.text
    raw.delete(place)


@pytest.mark.parametrize("no_ack", [False, True], ids=["ack", "no_ack"])
def test_what_on_damaged_never_took_goes_back_when_the_channel_closes(
    redis_broker, raw, unique_name, no_ack
):
    tries = []

    def on_damaged(data, _queue, _error):
        tries.append(data)
        raise ConnectionError("the letters' queue is away")

    raw.lpush(unique_name, b"damaged")
    with (
        connect(redis_broker, on_damaged=on_damaged) as connection,
        consuming(connection, unique_name, no_ack=no_ack) as inbox,
    ):
        while not tries:
            inbox.turn()
    assert raw.lrange(unique_name, 0, -1) == [b"damaged"]


def hands() -> int:
    """Return how many threads try to hand something over."""
    return sum(thread.name == "angzarr-damaged" for thread in threading.enumerate())


class Away:
    """An `on_damaged` that fails until it is told to work."""

    def __init__(self) -> None:
        self.well, self.taken = threading.Event(), []

    def __call__(self, data, _queue, _error) -> None:
        if not self.well.is_set():
            raise ConnectionError("the letters' queue is away")
        self.taken.append(data)


#: Threads: what is in hand when fetching stops, and one more fetch.
MOST_HANDS = ENOUGH_IN_HAND + MOST_A_STEP


def test_a_flood_that_cannot_be_handed_over_waits_in_its_queue(
    redis_broker, raw, unique_name, monkeypatch
):
    monkeypatch.setattr("angzarr.adapters.redis.damaged.LONGEST_PAUSE", 0.5)
    rows = [b"damaged %d" % n for n in range(300)]
    raw.lpush(unique_name, *rows)
    on_damaged = Away()
    with looped(redis_broker, unique_name, prefetch=8, on_damaged=on_damaged) as worker:
        worker.until(lambda: hands() >= ENOUGH_IN_HAND, "the first damaged messages")
        worker.rest(0.5)
        assert ENOUGH_IN_HAND <= hands() <= MOST_HANDS
        assert raw.llen(unique_name) + held(raw) == len(rows), "none is lost"
        on_damaged.well.set()
        worker.until(lambda: len(on_damaged.taken) == len(rows), "all of them")
        worker.until(lambda: held(raw) == 0 and not hands(), "them to be let go")
    assert sorted(on_damaged.taken) == sorted(rows)
    assert raw.llen(unique_name) == 0


def test_basic_get_takes_no_more_than_can_be_handed_over(redis_broker, raw, unique_name):
    raw.lpush(unique_name, *[b"damaged"] * 300)
    with (
        connect(redis_broker, on_damaged=Away()) as connection,
        connection.channel() as channel,
    ):
        assert channel.basic_get(unique_name) is None
        assert hands() == ENOUGH_IN_HAND
        assert raw.llen(unique_name) == 300 - ENOUGH_IN_HAND
    assert raw.llen(unique_name) == 300, "what was not handed over goes back"


def test_what_was_fetched_and_not_looked_at_is_given_back_as_it_is(redis_broker, raw, unique_name):
    """Only what has the place for it gets the flag that says redelivered."""
    raw.lpush(unique_name, text(), *DAMAGED.values())
    with connect(redis_broker, OURS) as connection:
        with consuming(connection, unique_name, prefetch=64) as inbox:
            assert inbox.wait(1) == [{"a": 1}]
        back = raw.lrange(unique_name, 0, -1)[::-1]
    assert len(back) == len(DAMAGED)
    for was, now in zip(DAMAGED.values(), back, strict=True):
        if now != was:
            flagged = json.loads(was)
            flagged["headers"]["redelivered"] = True
            flagged["properties"]["delivery_info"]["redelivered"] = True
            assert json.loads(now) == flagged


def test_the_key_prefix_counts_for_the_damaged_too(redis_broker, raw, unique_name):
    prefix = f"{unique_name}:"
    raw.lpush(f"{prefix}q", b"damaged")
    with connect(redis_broker, global_keyprefix=prefix) as connection:
        publish(connection, "q", ["good"])
        with consuming(connection, "q") as inbox:
            assert inbox.wait(1) == ["good"]
    assert raw.keys("*") == [f"{prefix}angzarr:damaged:q".encode()]


@pytest.mark.parametrize("priority", [0, 9])
def test_one_of_any_priority_is_filed_under_its_queue(redis_broker, raw, unique_name, priority):
    raw.lpush(f"{unique_name}\x06\x16{priority}" if priority else unique_name, b"damaged")
    with (
        connect(redis_broker) as connection,
        consuming(connection, unique_name) as inbox,
    ):
        inbox.rest(0.1)
    assert raw.keys("*") == [f"angzarr:damaged:{unique_name}".encode()]


def test_a_damaged_broadcast_is_told_and_the_next_one_heard(redis_broker, raw, unique_name, caplog):
    from kombu import Exchange, Producer, Queue

    exchange = Exchange(unique_name, "fanout")
    topic = f"/{redis_broker.rpartition('/')[2]}.{unique_name}"
    with connect(redis_broker) as connection:
        producer = Producer(connection, exchange)
        with consuming(connection, Queue(f"{unique_name}-q", exchange), no_ack=True) as inbox:
            while not inbox.messages:
                producer.publish("knock")
                inbox.turn(0.02)
            raw.publish(topic, b"{not json")
            producer.publish("good")
            while inbox.wait(1)[-1] != "good":
                inbox.turn(1)
    assert "Cannot process event" in caplog.text
