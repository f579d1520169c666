"""Events follow from commands, in one way only (C1)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

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
)

from angzarr.aggregates.book import Address, Book
from angzarr.aggregates.decorators import applies
from angzarr.errors import (
    CommandRejectedError,
    DecodeError,
    NotAnEvent,
    UnknownCommand,
    UnserializableEvent,
)
from angzarr.events.event import Event, Priority

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
