"""What RabbitMQ gave up, in hand: none is lost, none keeps the others or the processor."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import pytest

from angzarr.adapters.celery.worker.rejected_by_broker import (
    ASIDE_FOR,
    LONGEST_PAUSE,
    PREFETCH,
    HeldRejections,
    raw_message,
    to_come_back,
    what_happened,
)
from angzarr.delivery.unsettled import TOO_LARGE_WAIT
from angzarr.errors import LetterTooLarge, StoreUnavailable

DEATH = {"queue": "orders", "reason": "rejected", "count": 1}
AWAY = ConnectionError("the letters' queue is away")


class Received:
    """A message as kombu hands it out."""

    def __init__(self, name, **headers):
        self.body, self.content_type, self.content_encoding = b"[]", "application/json", "utf-8"
        self.headers = {"id": name, "task": "t", "x-death": [DEATH], **headers}
        self.properties = {"correlation_id": name}
        self.acked = 0

    def ack(self):
        self.acked += 1


@pytest.fixture
def desk():
    return Desk()


class Desk:
    """A hand, what it does, and what stands in its way."""

    def __init__(self):
        self.now = 0.0
        self.failing = {}
        self.tried, self.parked, self.buried = [], [], []
        self.store_away = False
        self.hand = HeldRejections(
            self.bury, self.park, monotonic=lambda: self.now, chance=lambda: 0.5
        )

    def bury(self, message, _error, _code):
        self.tried.append(message.id)
        if message.id in self.failing:
            raise self.failing[message.id]
        self.buried.append(message.id)

    def park(self, message, wait):
        if self.store_away:
            msg = "the store is away"
            raise StoreUnavailable(msg)
        self.parked.append((message.id, wait))

    def take(self, *names, failing=None):
        """Take messages in hand as RabbitMQ would give them, of which all fail or none."""
        self.failing |= {name: failing for name in names if failing}
        received = [Received(name) for name in names]
        for one in received:
            self.hand.take(one)
        return received

    def turn_for(self, seconds, turn=0.5):
        """Turn as a reader does for so long."""
        until = self.now + seconds
        while self.now < until:
            self.hand.turn()
            self.now += turn


def many(number=PREFETCH):
    return [f"m{n}" for n in range(number)]


def test_what_is_too_large_waits_elsewhere_at_once_and_is_encoded_once(desk, caplog):
    received = desk.take(*many(), failing=LetterTooLarge("1.1 MB"))
    desk.turn_for(60)
    assert desk.parked == [(name, TOO_LARGE_WAIT) for name in many()]
    assert desk.tried == many()
    assert caplog.text.count("letter_too_large") == PREFETCH
    assert [one.acked for one in received] == [1] * PREFETCH


def test_nothing_is_let_go_that_is_neither_a_letter_nor_kept_elsewhere(desk):
    desk.store_away = True
    (large,) = desk.take("large", failing=LetterTooLarge("1.1 MB"))
    desk.turn_for(300)
    assert (large.acked, desk.parked) == (0, [])
    assert len(desk.tried) < 20, "it is not tried in a hot loop"
    desk.store_away = False
    desk.turn_for(LONGEST_PAUSE * 1.5)
    assert (large.acked, desk.parked) == (1, [("large", TOO_LARGE_WAIT)])


def test_each_has_a_wait_of_its_own_that_grows_to_a_bound(desk):
    desk.take("ill", failing=AWAY)
    times, tried = [], 0
    for _ in range(400):
        desk.turn_for(0.5)
        if len(desk.tried) > tried:
            tried = len(desk.tried)
            times.append(desk.now - 0.5)
    waits = [later - sooner for sooner, later in pairwise(times)]
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (0.5, LONGEST_PAUSE)


def test_one_that_fails_keeps_no_other(desk):
    (ill,) = desk.take("ill", failing=AWAY)
    desk.turn_for(60)
    (well,) = desk.take("well")
    desk.hand.turn()
    assert (ill.acked, well.acked, desk.buried) == (0, 1, ["well"])
    desk.failing.clear()
    desk.turn_for(LONGEST_PAUSE * 1.5)
    assert (ill.acked, desk.buried) == (1, ["well", "ill"])


def test_while_there_is_room_what_fails_stays_in_its_queue(desk):
    received = desk.take(*many(PREFETCH - 1), failing=AWAY)
    desk.turn_for(3600)
    assert desk.parked == []
    assert not any(one.acked for one in received)


def test_a_full_hand_puts_aside_what_has_failed_for_long(desk):
    received = desk.take(*many(), failing=AWAY)
    desk.hand.turn()
    assert desk.parked == [], "an outage may be short"
    desk.turn_for(LONGEST_PAUSE * 4)
    assert desk.parked == [(name, ASIDE_FOR) for name in many()]
    assert [one.acked for one in received] == [1] * PREFETCH
    assert len(desk.tried) < PREFETCH * 10


def test_messages_of_a_lost_connection_are_forgotten(desk):
    (lost,) = desk.take("lost", failing=AWAY)
    desk.hand.turn()
    desk.hand.clear()
    desk.turn_for(60)
    assert (desk.tried, lost.acked) == (["lost"], 0)


def test_what_waits_elsewhere_comes_back_to_be_the_same_letter():
    found = raw_message(Received("m"))
    again = to_come_back(found, "angzarr-dropped")
    assert (found.queue, again.queue) == ("orders", "angzarr-dropped")
    fields = ("body", "content_type", "content_encoding", "headers", "properties")
    back = SimpleNamespace(**{name: getattr(again, name) for name in fields})
    read = raw_message(back)
    assert (read.queue, read.body, read.properties) == ("orders", found.body, found.properties)
    assert str(what_happened(back.headers)) == str(what_happened(found.headers))


def test_what_tells_no_queue_comes_back_without_one():
    nameless = raw_message(Received("m", **{"x-death": None}))
    assert to_come_back(nameless, "angzarr-dropped").headers == nameless.headers
