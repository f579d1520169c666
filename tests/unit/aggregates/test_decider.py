from __future__ import annotations

import random
from datetime import timedelta

import pytest
from tests.accounts import Account, Deposit, command, new_address

from angzarr.adapters.memory.event_store import MemoryEventBooks
from angzarr.aggregates.book import Address, Decision, Write
from angzarr.aggregates.decider import AGAIN, BATCH, EVERY, GRACE, Decider, Relay
from angzarr.errors import BrokerUnavailable, IdempotencyConflictError
from angzarr.events.event import Event
from hand_clock import HandClock, seldom_by


def carry_out(books, asked):
    decider = Decider(
        books=books, aggregates={"account": Account}, clock=HandClock(), chance=random.random
    )
    return decider.execute(asked)


def test_another_command_that_was_quicker_under_the_same_id_is_told_from_this_one():
    """Both read a book without a decision; the one that writes second is not the other."""
    place = new_address()
    other = command(place, Deposit(cents=6), id="order-17")

    class Slow(MemoryEventBooks):
        def write(self, write):
            if write.decision.digest != other.digest:
                carry_out(self, other)
            return super().write(write)

    with pytest.raises(IdempotencyConflictError, match="'order-17' was used before"):
        carry_out(Slow(), command(place, Deposit(cents=5), id="order-17"))


HERE = Address("player", "p")


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture
def books(clock):
    return MemoryEventBooks(clock)


@pytest.fixture
def published():
    return []


@pytest.fixture
def relay(books, clock, published):
    return Relay(
        books=books, publish=published.extend, clock=clock, chance=lambda: 0.5,
        seldom=seldom_by(clock),
    )  # fmt: skip


def decide(books, cause, *, unsent=True):
    events = (Event(id=f"e-{cause}", type="Counted", data=None),)
    books.write(Write(address=HERE, decision=Decision(cause=cause, events=events), unsent=unsent))


def test_what_was_just_decided_is_left_to_whoever_decided(relay, books, clock, published):
    decide(books, "c")
    clock.sleep(GRACE)
    assert relay.turn() == EVERY
    assert published == []


def test_what_stays_unsent_is_published_once(relay, books, clock, published):
    decide(books, "c")
    decide(books, "sent", unsent=False)
    clock.sleep(GRACE + timedelta(seconds=1))
    relay.turn()
    relay.turn()
    assert [event.id for event in published] == ["e-c"]


def test_a_full_batch_is_followed_by_the_next_at_once(relay, books, clock, published):
    for number in range(BATCH + 1):
        decide(books, str(number))
    clock.sleep(GRACE * 2)
    assert relay.turn() == timedelta(0)
    assert relay.turn() == EVERY
    assert len(published) == BATCH + 1


def test_a_broker_that_is_away_keeps_it_unsent(relay, books, clock, published, caplog):
    def away(_events):
        raise BrokerUnavailable("it is away")

    decide(books, "c")
    clock.sleep(GRACE * 2)
    relay.publish = away
    assert relay.turn() == relay.turn() == EVERY
    assert [record.message for record in caplog.records] == ["relay_waits: it is away"]
    relay.publish = published.extend
    relay.turn()
    assert [event.id for event in published] == ["e-c"]


def test_what_can_never_be_sent_stays_unsent_and_holds_up_no_other(
    relay, books, clock, published, caplog
):
    def picky(events):
        if events[0].id == "e-bad":
            raise ValueError("it cannot be sent")
        published.extend(events)

    decide(books, "bad")
    decide(books, "good")
    clock.sleep(GRACE * 2)
    relay.publish = picky
    assert relay.turn() == EVERY
    assert [event.id for event in published] == ["e-good"]
    assert [one.decision.cause for one in books.unsent(clock.now(), 10)] == ["bad"]


def test_what_the_broker_refuses_holds_up_no_other_however_much_it_is(
    relay, books, clock, published
):
    tried = []

    def picky(events):
        tried.append(events[0].id)
        if events[0].id.startswith("e-bad"):
            raise BrokerUnavailable("its queue has other arguments", refused=True)
        published.extend(events)

    for number in range(BATCH + 5):
        decide(books, f"bad{number}")
        clock.sleep(timedelta(microseconds=1))
    decide(books, "good")
    clock.sleep(GRACE * 2)
    relay.publish = picky
    relay.turn()
    relay.turn()
    assert [event.id for event in published] == ["e-good"]
    assert len(tried) == BATCH + 6, "what was refused is left alone for a while"
    clock.sleep(AGAIN)
    relay.publish = published.extend
    relay.turn()
    relay.turn()
    assert len(published) == BATCH + 6
