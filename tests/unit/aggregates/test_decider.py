"""Commands are decided once, events follow in one way only, and the relay sends the rest (C1)."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from google.protobuf.duration_pb2 import Duration
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field
from tests.accounts import (
    ADDRESS,
    Account,
    Deposit,
    Deposited,
    Funds,
    Withdraw,
    Withdrawn,
    book_of,
    command,
    event,
    new_address,
)

from angzarr.adapters.memory.event_store import MemoryEventBooks
from angzarr.aggregates.book import Address, Book, Decision, Write
from angzarr.aggregates.decider import AGAIN, BATCH, EVERY, GRACE, Decider, Relay
from angzarr.aggregates.decorators import applies
from angzarr.errors import (
    BrokerUnavailable,
    CommandRejectedError,
    DecodeError,
    IdempotencyConflictError,
    NotAnEvent,
    UnknownCommand,
    UnserializableEvent,
)
from angzarr.events.event import Event, Priority
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


AT = datetime(2026, 3, 1, tzinfo=UTC)


def decided(payload, *, of=Account, book=None, address=ADDRESS, **fields):
    return of(book or book_of()).decide(command(address, payload, **fields))


def test_a_command_is_decided_on_the_state():
    rich = book_of(event(Deposited(cents=7)))
    (withdrawn,) = decided(Withdraw(cents=7), book=rich)
    assert (withdrawn.type, withdrawn.data) == ("Withdrawn", {"cents": 7})
    with pytest.raises(CommandRejectedError, match="only 7 are left"):
        decided(Withdraw(cents=8), book=rich)


def test_the_flow_goes_on_in_the_events():
    (made,) = decided(
        Deposit(cents=1), id="c-1", correlation_id="flow", causation_id="before", tenant_id="t",
        priority=Priority.REALTIME, config_pins={"fees": "3"}, depth=4, traceparent="00-1-2-03",
        occurred_at=AT,
    )  # fmt: skip
    assert made == Event(
        id=made.id, type="Deposited", data={"cents": 1}, correlation_id="flow",
        causation_id="c-1", tenant_id="t", priority=Priority.REALTIME, config_pins={"fees": "3"},
        depth=5, traceparent="00-1-2-03",
    )  # fmt: skip


def test_a_command_without_a_correlation_begins_one():
    (made,) = decided(Deposit(cents=1), id="c-1")
    assert (made.correlation_id, made.causation_id, made.depth) == ("c-1", "c-1", 1)


places = st.builds(
    Address, st.sampled_from(["account", "a.b"]), st.text(min_size=1), st.sampled_from(["", "x"])
)


@given(st.text(min_size=1), places, st.text(min_size=1), places)
def test_the_same_command_has_the_same_ids_and_another_has_others(one, here, other, there):
    def ids(id, address):
        given = command(address, Deposit(cents=1), id=id)
        account = Account(Book(address=address))
        return [made.id for made in account.events_of([Deposited(cents=1)] * 3, given.event)]

    assert ids(one, here) == ids(one, here)
    assert len(set(ids(one, here))) == 3
    if (one, here) != (other, there):
        assert not set(ids(one, here)) & set(ids(other, there))


def test_a_command_with_an_odd_id_has_events_all_the_same():
    (made,) = decided(Deposit(cents=1), id="\ud800\x00")
    (other,) = decided(Deposit(cents=1), id="\ud801\x00")
    assert made.id != other.id


def test_a_command_that_nobody_handles_is_unknown():
    with pytest.raises(UnknownCommand, match="'Deposited'"):
        decided(Deposited(cents=1))


def test_a_command_that_does_not_fit_is_refused_without_its_values():
    bad = command(ADDRESS, Deposit(cents=1))
    bad = replace(bad, event=replace(bad.event, data={"cents": "s3cret"}))
    with pytest.raises(DecodeError, match="cents") as caught:
        Account(book_of()).decide(bad)
    assert "s3cret" not in str(caught.value)


def test_a_method_sees_its_command_while_it_decides_and_only_then():
    seen = []

    class Looking(Account):
        def deposit(self, given):
            seen.append(self.command)
            raise CommandRejectedError("no")

    looking, asked = Looking(book_of()), command(ADDRESS, Deposit(cents=1))
    with pytest.raises(CommandRejectedError):
        looking.decide(asked)
    assert (seen, looking.command) == ([asked], None)


@pytest.mark.parametrize(
    ("answered", "types"),
    [
        (None, []),
        ([], []),
        (Deposited(cents=1), ["Deposited"]),
        ((Deposited(cents=1), Withdrawn(cents=1)), ["Deposited", "Withdrawn"]),
        (Duration(seconds=1), ["google.protobuf.Duration"]),
        (Funds(cents=1), ["Funds"]),
    ],
)
def test_a_method_answers_no_event_or_one_or_several(answered, types):
    class Answering(Account):
        def deposit(self, given):
            return answered

    assert [made.type for made in decided(Deposit(cents=1), of=Answering)] == types


def test_a_method_may_yield_its_events():
    class Yielding(Account):
        def deposit(self, given):
            yield Deposited(cents=self.command.event.data["cents"])
            yield Withdrawn(cents=1)

    made = decided(Deposit(cents=3), of=Yielding)
    assert [one.type for one in made] == ["Deposited", "Withdrawn"]


def test_a_method_may_refuse_after_it_yielded():
    class Yielding(Account):
        def deposit(self, given):
            yield Deposited(cents=1)
            raise CommandRejectedError("no more")

    with pytest.raises(CommandRejectedError, match="no more"):
        decided(Deposit(cents=3), of=Yielding)


@pytest.mark.parametrize("answered", [True, 7, "Deposited", {"cents": 1}, object(), Deposited])
def test_what_is_no_event_is_refused(answered):
    class Answering(Account):
        def deposit(self, given):
            return [answered]

    with pytest.raises(NotAnEvent, match="is not an event"):
        decided(Deposit(cents=1), of=Answering)


class Lossy(BaseModel):
    cents: int = Field(exclude=True)


def test_an_event_that_its_own_aggregate_could_not_read_is_refused():
    class Losing(Account):
        def deposit(self, given):
            return Lossy(cents=1)

        @applies(Lossy)
        def lost(self, given): ...

    with pytest.raises(UnserializableEvent, match=r"not read the Lossy that it answers: .*cents"):
        decided(Deposit(cents=1), of=Losing)
