"""What sagas and process managers are, and which commands follow from an event."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from tests.chain_world import address

from angzarr.aggregates.book import Book
from angzarr.aggregates.command import Origin
from angzarr.aggregates.decorators import reacts_to
from angzarr.errors import ConfigurationError, DecodeError, InvalidRoot
from angzarr.events.event import Event, Typed
from angzarr.sagas.saga import (
    ProcessManager,
    Saga,
    Send,
    command_of,
    origin_for,
    reaction,
    source_of,
)


class Seat(BaseModel):
    player_id: str = "p-1"


class Reserved(BaseModel):
    amount: int = 5


class Progress(BaseModel):
    started: int = 0


CAUSE = Event(id="e-1", type="Reserved", data={}, domain="player", root="p-1", sequence=3)
SEND = Send(Seat(), domain="table", root="t-1")


def test_a_send_is_compared_by_what_it_says():
    assert Send(Seat(), domain="table", root="t-1") == SEND
    assert Send(Seat(), domain="table", root="t-2") != SEND
    assert (SEND.edition, SEND.expected) == (None, None)


def test_the_ids_of_commands_follow_from_the_event_the_saga_and_their_place():
    def ids(cause="e-1", saga="seating"):
        event = Event(id=cause, type="t", data={})
        found = reaction([SEND, SEND], event, saga, None)
        return {command.id for command in found.commands}

    assert ids() == ids()
    assert len(ids() | ids(cause="e-2") | ids(saga="other")) == 6


@given(st.lists(st.sampled_from([SEND, Reserved(), Typed("x", 1)]), max_size=6))
def test_events_and_commands_are_told_apart_in_their_order(answered):
    found = reaction(answered, CAUSE, "seating", None)
    assert found.events == [one for one in answered if one != SEND]
    assert len(found.commands) == answered.count(SEND)


def test_who_hears_of_a_rejection_is_the_source_of_the_event():
    assert source_of(CAUSE) == address()
    assert origin_for(CAUSE, "seating") == Origin(saga="seating", source=address(), sequence=3)


@pytest.mark.parametrize("missing", ["domain", "root", "sequence"])
def test_an_event_without_a_place_has_no_source(missing):
    said = {"domain": "player", "root": "p-1", "sequence": 0} | {missing: None}
    event = Event(id="e", type="t", data={}, **said)
    assert source_of(event) is None
    assert origin_for(event, "seating") is None


def test_the_first_event_of_a_book_has_a_place():
    assert source_of(Event(id="e", type="t", data={}, domain="player", root="p", sequence=0))


def test_a_command_without_a_flow_begins_one():
    command = command_of(SEND, CAUSE, None, "seating", 0)
    assert command.event.correlation_id == "e-1"


def test_a_uuid_is_as_good_a_root_as_its_text():
    root = UUID(int=7)
    command = command_of(Send(Seat(), domain="table", root=root), CAUSE, None, "seating", 0)
    assert command.address.root == str(root)

    class Manager(ProcessManager[Progress]):
        domain = "fulfilment"

        @classmethod
        def root_of(cls, _event: Event) -> UUID:
            return root

        @reacts_to(Reserved)
        def start(self, _event: Reserved) -> None:
            pass

    assert Manager.address_for(CAUSE) == address("fulfilment", str(root))


def test_a_process_that_is_found_by_nothing_is_refused():
    class Manager(ProcessManager[Progress]):
        domain = "fulfilment"

        @classmethod
        def root_of(cls, event: Event) -> str:
            return event.tenant_id

        @reacts_to(Reserved)
        def start(self, _event: Reserved) -> None:
            pass

    with pytest.raises(InvalidRoot, match="root_of"):
        Manager.address_for(CAUSE)


def test_an_event_that_does_not_fit_is_refused_by_a_process():
    class Manager(ProcessManager[Progress]):
        domain = "fulfilment"

        @reacts_to(Reserved)
        def start(self, _event: Reserved) -> None:
            pass

    asked = Manager(Book(address=address("fulfilment", "flow")))
    assert asked.event is None
    with pytest.raises(DecodeError, match="amount"):
        asked.react(Event(id="e", type="Reserved", data={"amount": "x"}))
    assert asked.react(CAUSE) is None
    assert asked.event is CAUSE


def test_two_methods_for_one_event_are_refused():
    with pytest.raises(ConfigurationError, match="reacts to Reserved twice"):

        class Twice(Saga):
            @reacts_to(Reserved)
            def one(self, _event: Reserved) -> None:
                pass

            @reacts_to(Reserved)
            def two(self, _event: Reserved) -> None:
                pass


def test_a_coroutine_is_refused():
    with pytest.raises(ConfigurationError, match="def, not async def"):

        class Slow(Saga):
            @reacts_to(Reserved)
            async def one(self, _event: Reserved) -> None:
                pass


TWO = Send(Seat(), domain="table", root="t-2")


def test_a_release_that_sends_in_another_order_sends_the_same_commands():
    before = reaction([SEND, TWO, SEND], CAUSE, "seating", None).commands
    after = reaction([TWO, SEND, SEND], CAUSE, "seating", None).commands
    assert {one.id: one.address for one in before} == {one.id: one.address for one in after}
    assert len({one.id for one in before}) == 3


@pytest.mark.parametrize("expected", [-1, 2**32, True, "3", 1.0])
def test_an_expectation_that_is_no_sequence_is_refused(expected):
    wrong = Send(Seat(), domain="table", root="t", expected=expected)
    with pytest.raises(ValueError, match="expected is the sequence that a book is at"):
        reaction(wrong, CAUSE, "seating", None)


@pytest.mark.parametrize("root", [None, 7, b"t"])
def test_a_root_that_is_neither_text_nor_uuid_is_refused(root):
    with pytest.raises(InvalidRoot, match="root must be a string or a UUID"):
        reaction(Send(Seat(), domain="table", root=root), CAUSE, "seating", None)
