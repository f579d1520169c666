"""What an answer to a rejection means, whatever form it has; and what is none (spec C5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from angzarr.errors import AngzarrError, DecodeError, NotAnEvent
from angzarr.events.event import Typed
from angzarr.sagas.rejection_answers import (
    Compensation,
    Flags,
    Forward,
    answer_of,
    delegate_to_framework,
    emit_compensation_events,
    pm_delegate_to_framework,
    pm_emit_compensation_events,
)
from angzarr.sagas.saga import Send
from angzarr.wire.book_pb2 import EventBook, EventPage
from angzarr.wire.identity_pb2 import Cover
from angzarr.wire.rejection_pb2 import (
    BusinessResponse,
    Notification,
    RejectionNotification,
    RevocationResponse,
)


class Released(BaseModel):
    amount: int = 3


@dataclass(frozen=True)
class Freed:
    amount: int = 3


class Pair(NamedTuple):
    first: int = 1
    second: int = 2


SEND = Send(Released(), domain="player", root="p-1")
TYPED = Typed("Released", {"amount": 3})
COVER = Cover(domain="order")


@pytest.mark.parametrize(
    ("said", "events"),
    [
        (Released(), [Released()]),
        (Freed(), [Freed()]),
        (TYPED, [TYPED]),
        (COVER, [COVER]),
        ([Released(), Freed(), TYPED, COVER], [Released(), Freed(), TYPED, COVER]),
        ((Released(), Freed()), [Released(), Freed()]),
        ((TYPED,), [TYPED]),
    ],
    ids=["model", "dataclass", "typed", "protobuf", "list", "tuple", "tuple of one"],
)
def test_events_are_the_compensation(said, events):
    assert answer_of(said) == Compensation(events, [], None)


def test_a_generator_is_read_once_and_all_of_it():
    assert answer_of(one for one in (Released(), SEND, Freed())) == Compensation(
        [Released(), Freed()], [SEND]
    )


def test_what_a_generator_raises_is_raised():
    def broken():
        yield Released()
        raise OSError("away")

    with pytest.raises(OSError, match="away"):
        answer_of(broken())


@pytest.mark.parametrize("said", [SEND, [SEND], (SEND,)])
def test_commands_alone_are_a_compensation(said):
    assert answer_of(said) == Compensation([], [SEND])


def test_commands_among_events_are_told_apart_in_their_order():
    other = Send(Released(), domain="player", root="p-2")
    assert answer_of([SEND, Released(), other]) == Compensation([Released()], [SEND, other])


@pytest.mark.parametrize(
    "said",
    [None, [], (), (one for one in ()), EventBook(), BusinessResponse(),
     BusinessResponse(events=EventBook(cover=COVER))],
    ids=["None", "list", "tuple", "generator", "book", "response", "response with a book"],
)  # fmt: skip
def test_nothing_is_no_answer(said):
    assert answer_of(said) is None


FLAGS = Flags(escalate=True, reason="r")
WIRED = RevocationResponse(escalate=True, reason="r")


@pytest.mark.parametrize("said", [FLAGS, WIRED, BusinessResponse(revocation=WIRED)])
def test_flags_are_read_in_each_of_their_forms(said):
    assert answer_of(said) == FLAGS


def test_flags_that_ask_for_nothing_are_an_answer_all_the_same():
    assert answer_of(BusinessResponse(revocation=RevocationResponse())) == Flags()
    assert answer_of(Flags()) == Flags()


@pytest.mark.parametrize("asked", [FLAGS, WIRED])
@pytest.mark.parametrize("nothing", [None, [], (), EventBook()])
def test_flags_beside_nothing_are_flags(nothing, asked):
    assert answer_of((nothing, asked)) == FLAGS


@pytest.mark.parametrize("asked", [FLAGS, WIRED])
@pytest.mark.parametrize("events", [Released(), [Released()], (Released(),)])
def test_flags_beside_events_go_with_them(events, asked):
    assert answer_of((events, asked)) == Compensation([Released()], [], FLAGS)


def test_a_response_with_events_is_what_they_were():
    said = answer_of(emit_compensation_events([Released(), TYPED, COVER]))
    assert said == Compensation([TYPED, TYPED, Typed("angzarr.Cover", {"domain": "order"})], [])


def test_a_book_is_its_events_whatever_numbers_and_cover_it_has():
    book = emit_compensation_events([Released()]).events
    book.cover.domain = "elsewhere"
    book.pages[0].header.sequence = 77
    assert answer_of(book) == Compensation([TYPED], [])


def test_a_notification_is_sent_on():
    note = Notification(cover=COVER)
    assert answer_of(note) == Forward(note)
    assert answer_of(BusinessResponse(notification=note)) == Forward(note)


def test_the_helpers_of_process_managers_are_answers():
    said = answer_of(
        pm_emit_compensation_events([Released()], also_emit_system_event=True, reason="r")
    )
    assert said == Compensation([TYPED], [], Flags(emit_system_revocation=True, reason="r"))
    assert answer_of(pm_delegate_to_framework("r")) == Flags(
        emit_system_revocation=True, reason="r"
    )
    assert answer_of(delegate_to_framework("r", emit_system_event=False)) == Flags(reason="r")


@pytest.mark.parametrize(
    "said",
    [0, 1, 0.0, True, False, "", "text", b"", b"x", {}, {"a": 1}, set(), {1}, Released, Freed,
     Flags, [None], [Released(), None], [[Released()]], [{}], [0], Pair(), [Pair()], (1, 2),
     ({}, FLAGS), (0, FLAGS), ("text", FLAGS)],
    ids=repr,
)  # fmt: skip
def test_what_is_neither_events_nor_flags_is_refused(said):
    with pytest.raises(NotAnEvent, match="is not an event or command: return a model"):
        answer_of(said)


@pytest.mark.parametrize(
    "alone",
    [FLAGS, WIRED, EventBook(), BusinessResponse(), Notification()],
    ids=lambda said: type(said).__name__,
)
@pytest.mark.parametrize(
    "among",
    [lambda one: [one], lambda one: [Released(), one], lambda one: (one, Released()),
     lambda one: ([one], FLAGS)],
)  # fmt: skip
def test_what_stands_for_itself_does_not_stand_among_events(alone, among):
    with pytest.raises(NotAnEvent, match=f"{type(alone).__name__} stands for itself"):
        answer_of(among(alone))


@pytest.mark.parametrize("alone", [BusinessResponse(), Notification(), FLAGS])
def test_one_answer_beside_flags_is_refused(alone):
    with pytest.raises(NotAnEvent, match="stands for itself"):
        answer_of((alone, FLAGS))


@pytest.mark.parametrize(
    ("page", "why"),
    [(EventPage(), "holds no event"),
     (EventPage(event=AnyMessage()), "has no type"),
     (EventPage(event=AnyMessage(type_url="x/angzarr.Cover", value=b"\xff")),
      "cannot be read as angzarr.Cove"),
     (EventPage(event=AnyMessage(type_url="x/angzarr.worker.JsonMessage", value=b"\x12\x01{")),
      "cannot be read as angzarr.worker.JsonMessage")],
)  # fmt: skip
def test_a_page_that_cannot_be_read_is_refused(page, why):
    for said in (EventBook(pages=[page]), BusinessResponse(events=EventBook(pages=[page]))):
        with pytest.raises(DecodeError, match=why):
            answer_of(said)


@given(st.binary(max_size=200))
def test_any_bytes_that_are_a_response_are_an_answer_or_an_error_of_ours(raw):
    try:
        response = BusinessResponse.FromString(raw)
    except Exception:
        return
    try:
        said = answer_of(response)
    except AngzarrError:
        return
    assert said is None or isinstance(said, Compensation | Forward | Flags)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(_json)
def test_bare_json_is_never_an_event(said):
    try:
        assert answer_of(said) is None
    except NotAnEvent:
        pass
    else:
        assert said is None or said == []


def test_a_rejection_that_is_answered_as_an_event_is_kept_as_one():
    """Any message but those that stand for themselves may be an event."""
    note = RejectionNotification(rejection_reason="full")
    assert answer_of(note) == Compensation([note], [])
