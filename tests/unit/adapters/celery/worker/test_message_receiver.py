"""What kills its readers is known for it, and nothing else is, however often it comes back."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.hand_clock import HandClock

from angzarr.adapters.celery.worker.message_receiver import (
    RedeliveredReader,
    is_packed,
    readers_died,
)
from angzarr.adapters.memory.idempotency import MemoryIdempotencyStore, MemoryOwnerLeases
from angzarr.delivery.unreadable import MOST_DEATHS
from angzarr.errors import StoreUnavailable
from angzarr.resilience.idempotency import RECORD_LIFE
from angzarr.resilience.idempotency_rules import ClaimStatus
from angzarr.runtime.json_bounds import Bounds

BOUNDS = Bounds(nodes=100, depth=10)


class Killed(BaseException):
    """The process is gone: nothing of it runs any more."""


class Message:
    content_type, headers, properties = "application/json", {}, {}
    content_encoding, delivery_info = "utf-8", {}

    def __init__(self, body=b"[[], {}, {}]", errors=()):
        self.body, self.errors, self.decoded = body, list(errors), 0

    def decode(self):
        self.decoded += 1


class Store(MemoryIdempotencyStore):
    """A claim store that a dead process tells nothing, and that may be away."""

    def __init__(self, clock):
        super().__init__(MemoryOwnerLeases(clock), clock=clock)
        self.dead = self.away = False
        self.asked = 0

    def claim(self, claims, /):
        self.asked += 1
        if self.away:
            raise StoreUnavailable("it is away")
        return super().claim(claims)

    def settle(self, key, token, ending, /, facts=()):
        if self.dead:
            raise Killed
        if self.away:
            raise StoreUnavailable("it is away")
        return super().settle(key, token, ending, facts)


class World:
    def __init__(self):
        self.clock = HandClock()
        self.store = Store(self.clock)
        self.seconds = 0.0
        self.reader = self.start()

    def start(self):
        return RedeliveredReader(self.store, BOUNDS, monotonic=lambda: self.seconds)

    def read(self, identity=b"1", make=Message, queue="q"):
        return self.reader.read(queue, identity, make, lambda: Message(b"packed"))

    def notes(self):
        """Return how many messages are noted as being read."""
        kept = self.store._records.values()
        return sum(record.status is ClaimStatus.PENDING for record, _ in kept)

    def die(self, identity=b"1", queue="q"):
        """Let a process die while it reads; True if it read."""

        def kill():
            self.store.dead = True
            raise Killed

        try:
            return readers_died(self.read(identity, kill, queue)) is None
        except Killed:
            return True
        finally:
            self.store.dead = False
            self.reader = self.start()


@pytest.fixture
def world():
    return World()


def test_after_three_deaths_it_is_not_unpacked_and_says_why(world):
    assert all(world.die() for _ in range(MOST_DEATHS))
    for _ in range(5):  # its letter could not be put, and it came back
        kept = world.read(make=lambda: pytest.fail("it is not to be unpacked"))
        assert (kept.body, is_packed(kept)) == (b"packed", True)
        assert "3 workers died, at least 3 of them" in str(readers_died(kept))


def test_a_message_beside_it_and_one_in_another_queue_are_read(world):
    for _ in range(MOST_DEATHS):
        world.die()
    for other in (world.read(b"2"), world.read(queue="q:1"), world.read(b"1:", queue="q")):
        assert (readers_died(other), other.decoded) == (None, 1)


def test_its_body_is_read_while_that_is_noted_and_the_note_is_taken_back(world):
    noted = []

    class Looked(Message):
        def decode(self):
            super().decode()
            noted.append(world.notes())

    found = world.read(make=Looked)
    assert (found.decoded, noted, world.notes()) == (1, [1], 0)
    world.clock.sleep(timedelta(minutes=1))
    world.store.sweep()
    assert not world.store._records


@given(st.lists(st.sampled_from(["given back", "unreadable", "unpacked wrongly", "one death"])))
def test_what_comes_back_any_number_of_times_is_no_letter_while_no_three_readers_die(tale):
    world = World()
    makes = {
        "given back": Message,
        "unreadable": lambda: Message(b"[" * 50),
        "unpacked wrongly": lambda: Message(errors=[(ValueError, ValueError(), None)]),
    }
    for what in tale:
        if what == "one death":
            assert world.die()
            assert readers_died(world.read()) is None
        else:
            assert readers_died(world.read(make=makes[what])) is None


@given(st.integers(0, MOST_DEATHS - 1))
def test_fewer_deaths_are_forgotten_once_it_was_read(deaths):
    world = World()
    for _ in range(deaths):
        world.die()
    world.read()
    assert all(world.die() for _ in range(MOST_DEATHS))
    assert not world.die()


def test_a_note_is_kept_for_a_day(world):
    for _ in range(MOST_DEATHS):
        world.die()
    world.clock.sleep(RECORD_LIFE)
    assert readers_died(world.read()) is None


def test_a_store_that_is_away_notes_nothing_and_is_not_asked_for_each_message(world):
    world.store.away = True
    assert [world.read().body for _ in range(10)] == [Message().body] * 10
    assert world.store.asked == 1
    world.seconds += 5
    world.store.away = False
    world.read()
    assert world.store.asked == 2


def test_an_error_of_what_makes_it_is_raised_and_is_no_death(world):
    def fail():
        raise TypeError("a fault of ours")

    for _ in range(MOST_DEATHS + 1):
        with pytest.raises(TypeError, match="ours"):
            world.read(make=fail)
    assert readers_died(world.read()) is None


def test_a_body_that_kombu_could_not_unpack_is_as_it_came():
    assert is_packed(Message(errors=[(ValueError, ValueError(), None)]))
    assert not is_packed(Message())
    assert not is_packed(Message("text", errors=[(ValueError, ValueError(), None)]))
