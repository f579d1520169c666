from __future__ import annotations

from datetime import timedelta

import pytest
from tests.contracts.ledger import letter_of
from tests.hand_clock import START, HandClock

from angzarr.adapters.memory.dead_letters import MemoryDeadLetterQueue, forget_channel
from angzarr.dead_letters.depth import LOOK_EVERY, DepthWatch, QueueDepth, depths_of
from angzarr.dead_letters.queue import RawLetter
from angzarr.errors import DeadLetterQueueUnavailable

MINUTE = timedelta(minutes=1)


class Place:
    """A queue that counts, until it is away."""

    def __init__(self, **waiting) -> None:
        self.counts = waiting
        self.is_away = False
        self.opened = self.closed = 0

    def __call__(self):
        self.opened += 1
        return self

    def waiting(self, domains, /):
        if self.is_away:
            raise DeadLetterQueueUnavailable("away")
        return {domain: self.counts.get(domain, 0) for domain in domains}

    def close(self):
        self.closed += 1


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture
def watch_of(clock):
    failures = []

    def make(**places):
        watch = DepthWatch(
            places=places, domains=("order", "mail"), clock=clock, chance=lambda: 0.5,
            every=MINUTE, failed=lambda name, _error: failures.append(name),
        )  # fmt: skip
        return watch, failures

    return make


def test_what_all_places_hold_of_a_domain_is_added_up(watch_of):
    watch, _ = watch_of(kafka=Place(order=3), sqs=Place(order=4, mail=1))
    assert watch.depths() == {}
    assert watch.turn() == MINUTE
    assert watch.depths() == {"order": QueueDepth(7, 7), "mail": QueueDepth(1, 1)}


def test_nothing_stays_open_between_two_turns_whether_it_answers_or_not(watch_of):
    place = Place(order=1)
    watch, failures = watch_of(amqp=place)
    watch.turn()
    place.is_away = True
    watch.turn()
    assert (place.opened, place.closed, failures) == (2, 2, ["amqp"])


def test_a_place_that_is_away_keeps_none_of_the_others_from_being_asked(watch_of):
    away = Place()
    away.is_away = True
    watch, failures = watch_of(kafka=away, sqs=Place(order=2))
    watch.turn()
    assert watch.depths()["order"] == QueueDepth(2, 2)
    assert failures == ["kafka"]


def test_what_was_heard_long_ago_is_not_told_as_if_it_were_so(watch_of, clock):
    place = Place(order=2)
    watch, _ = watch_of(amqp=place)
    watch.turn()
    place.is_away = True
    clock.sleep(3 * MINUTE)
    watch.turn()
    assert watch.depths()["order"].waiting == 2
    clock.sleep(MINUTE)
    assert watch.depths() == {}


def test_a_client_that_fails_in_a_way_nobody_foresaw_ends_no_thread(watch_of):
    def broken():
        raise RuntimeError("a bug")

    watch, failures = watch_of(amqp=broken)
    assert watch.turn() == MINUTE
    assert failures == ["amqp"]


class Turn:
    """A duty that a test gives and takes."""

    def __init__(self) -> None:
        self.ours, self.ended = True, False

    def is_ours(self):
        if self.ours is None:
            raise RuntimeError("a bug")
        return self.ours

    def end(self):
        self.ended = True


def test_who_is_not_to_ask_asks_nobody_and_tells_nothing_that_it_heard_before(watch_of):
    place, duty = Place(order=2), Turn()
    watch, failures = watch_of(amqp=place)
    watch.duty = duty
    assert watch.turn() == MINUTE
    assert watch.depths()["order"].waiting == 2
    for theirs in (False, None):
        duty.ours = theirs
        assert watch.turn() == LOOK_EVERY
        assert (watch.depths(), place.opened) == ({}, 1)
    assert failures == ["the claim store"]
    watch.leave()
    assert duty.ended


def test_a_queue_that_cannot_tell_is_left_out():
    class Mute:
        pass

    assert depths_of(Mute(), ["order"]) == {}


def test_letters_in_memory_wait_since_they_were_sent(unique_channel):
    queue = MemoryDeadLetterQueue(unique_channel)
    assert depths_of(queue, ["order"]) == {"order": QueueDepth(0, 0)}
    queue.put([letter_of("e1", sent_to_dlq_at=START), letter_of("e2")])
    assert depths_of(queue, ["order"]) == {"order": QueueDepth(2, 2, START)}
    queue.put_raw([RawLetter(domain="mail", raw=b"?", content_type="text/plain")])
    assert depths_of(queue, ["mail"]) == {"mail": QueueDepth(1, 1)}


@pytest.fixture
def unique_channel(request):
    yield request.node.name
    forget_channel(request.node.name)
