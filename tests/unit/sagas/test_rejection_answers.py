"""The protobuf forms of a rejection and of what is answered, as other languages exchange them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from angzarr.aggregates.book import Address
from angzarr.aggregates.command import Command, Origin
from angzarr.errors import NotAnEvent, UnserializableEvent
from angzarr.events.event import Event, Typed
from angzarr.sagas.rejection import CompensationContext
from angzarr.sagas.rejection_answers import (
    CompensationStep,
    Flags,
    Result,
    RevocationOutcome,
    build_revoke_command_book,
    delegate_to_framework,
    emit_compensation_events,
    handle_business_response,
    notification_of,
    pm_delegate_to_framework,
    pm_emit_compensation_events,
    process_revocation_flags,
    revoke_command,
)
from angzarr.sagas.saga import Send
from angzarr.wire.book_pb2 import EventBook
from angzarr.wire.identity_pb2 import Cover
from angzarr.wire.rejection_pb2 import (
    BusinessResponse,
    Notification,
    RejectionNotification,
    RevocationResponse,
    RevokeEventCommand,
)

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Released(BaseModel):
    amount: int = 3


@dataclass(frozen=True)
class Freed:
    amount: int = 3


SOURCE = Address("player", "p-1", "what-if")


def context(source=SOURCE, **fields):
    said = {
        "id": "c-1", "type": "SeatPlayer", "data": {"player_id": "p-1"}, "domain": "table",
        "root": "t-1", "correlation_id": "flow",
    } | fields  # fmt: skip
    command = Command(event=Event(**said), origin=Origin(saga="seating", source=source, sequence=3))
    return CompensationContext.from_rejected_command(command, "full")


# -- what is answered ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [[Released(), Freed()], (Released(), Freed()), iter([Released(), Freed()]),
     (one for one in (Released(), Freed())), filter(None, [Released(), Freed()])],
    ids=["list", "tuple", "iterator", "generator", "filter"],
)  # fmt: skip
def test_events_become_pages_with_placeholders(given):
    response = emit_compensation_events(given)
    assert response.WhichOneof("result") == "events"
    assert [page.header.sequence for page in response.events.pages] == [0, 0]
    assert [page.header.WhichOneof("sequence_type") for page in response.events.pages] == [
        "sequence"
    ] * 2


@pytest.mark.parametrize(
    "one", [Released(), Freed(), Typed("Released", {"amount": 3}), Cover(domain="d")],
    ids=["model", "dataclass", "typed", "protobuf"],
)  # fmt: skip
def test_one_event_is_as_good_as_a_list_of_one(one):
    """A model would yield its fields, and a typed event its name, as if they were events."""
    assert emit_compensation_events(one) == emit_compensation_events([one])
    assert pm_emit_compensation_events(one) == pm_emit_compensation_events([one])


@pytest.mark.parametrize(
    "odd",
    [{}, {"a": 1}, "text", b"x", 0, True, [None], [{}], [Released], [[Released()]], {Released},
     [Flags()], [RevocationResponse()], [EventBook()], [Notification()], [BusinessResponse()],
     Flags(), [Send(Released(), domain="player", root="p-1")]],
    ids=lambda odd: repr(odd)[:40],
)  # fmt: skip
def test_what_is_no_event_becomes_no_page(odd):
    with pytest.raises(NotAnEvent):
        emit_compensation_events(odd)


def test_a_book_goes_as_it_is():
    book = EventBook(next_sequence=7)
    assert emit_compensation_events(book).events == book
    assert pm_emit_compensation_events(book)[0] == book


def test_no_events_are_a_response_with_an_empty_book():
    assert emit_compensation_events([]).WhichOneof("result") == "events"
    assert emit_compensation_events(None) == emit_compensation_events([])


@pytest.mark.parametrize(("said", "asked"), [({}, True), ({"emit_system_event": False}, False)])
def test_delegating_asks_for_a_system_event_unless_told_otherwise(said, asked):
    response = delegate_to_framework("too late", **said)
    assert response.WhichOneof("result") == "revocation"
    assert response.revocation == RevocationResponse(
        emit_system_revocation=asked, reason="too late"
    )


def test_a_process_manager_answers_with_both():
    book, asked = pm_emit_compensation_events([Released()])
    assert len(book.pages) == 1
    assert asked == RevocationResponse()
    assert pm_emit_compensation_events([], also_emit_system_event=True, reason="r")[1] == (
        RevocationResponse(emit_system_revocation=True, reason="r")
    )
    assert pm_delegate_to_framework("r") == (
        None,
        RevocationResponse(emit_system_revocation=True, reason="r"),
    )


# -- what is told --------------------------------------------------------------------------------


def test_the_older_form_says_what_was_rejected_and_what_set_it_off():
    told = revoke_command(context())
    assert (told.triggering_event_sequence, told.saga_name) == (3, "seating")
    assert told.rejection_reason == "full"
    assert told.rejected_command.cover.domain == "table"
    assert told.rejected_command.pages[0].header.angzarr_deferred.source_seq == 3


def test_the_older_form_is_a_command_to_the_source():
    book = build_revoke_command_book(context())
    assert book.cover.domain == "player"
    assert book.cover.root.value == b"p-1"
    assert book.cover.edition.name == "what-if"
    assert book.cover.correlation_id == "flow"
    (page,) = book.pages
    assert page.header.WhichOneof("sequence_type") == "sequence"
    assert page.header.sequence == 0
    told = RevokeEventCommand()
    assert page.command.Unpack(told)
    assert told == revoke_command(context())


def test_a_notification_goes_to_the_source_and_names_the_saga_in_its_metadata():
    note = notification_of(context(), NOW)
    assert (note.cover.domain, note.cover.edition.name) == ("player", "what-if")
    assert dict(note.metadata) == {"saga_name": "seating"}
    assert note.sent_at.ToDatetime(UTC) == NOW
    told = RejectionNotification()
    assert note.payload.Unpack(told)
    assert told.rejection_reason == "full"


def test_the_same_rejection_has_the_same_bytes():
    one, two = (notification_of(context(data={"b": 1, "a": 2}), NOW) for _ in range(2))
    assert one.SerializeToString(deterministic=True) == two.SerializeToString(deterministic=True)


def test_what_the_wire_cannot_carry_is_refused():
    odd = context(source=Address("player", "x" * 16))
    for make in (revoke_command, build_revoke_command_book, lambda c: notification_of(c, NOW)):
        with pytest.raises(UnserializableEvent, match="would read it as one"):
            make(odd)


LETTER, ESCALATE, ABORT, REVOKE = (
    CompensationStep.DEAD_LETTER,
    CompensationStep.ESCALATE,
    CompensationStep.ABORT,
    CompensationStep.REVOKE,
)

#: (letter, escalate, abort, revoke) → what is done, in order, and how it ends.
TABLE = {
    (0, 0, 0, 0): ((), Result.DECLINED),
    (1, 0, 0, 0): ((LETTER,), Result.DECLINED),
    (0, 1, 0, 0): ((ESCALATE,), Result.DECLINED),
    (1, 1, 0, 0): ((LETTER, ESCALATE), Result.DECLINED),
    (0, 0, 0, 1): ((REVOKE,), Result.REVOKED),
    (1, 0, 0, 1): ((LETTER, REVOKE), Result.REVOKED),
    (0, 1, 0, 1): ((ESCALATE, REVOKE), Result.REVOKED),
    (1, 1, 0, 1): ((LETTER, ESCALATE, REVOKE), Result.REVOKED),
    (0, 0, 1, 0): ((ABORT,), Result.ABORTED),
    (1, 0, 1, 0): ((LETTER, ABORT), Result.ABORTED),
    (0, 1, 1, 0): ((ESCALATE, ABORT), Result.ABORTED),
    (1, 1, 1, 0): ((LETTER, ESCALATE, ABORT), Result.ABORTED),
    (0, 0, 1, 1): ((ABORT,), Result.ABORTED),
    (1, 0, 1, 1): ((LETTER, ABORT), Result.ABORTED),
    (0, 1, 1, 1): ((ESCALATE, ABORT), Result.ABORTED),
    (1, 1, 1, 1): ((LETTER, ESCALATE, ABORT), Result.ABORTED),
}  # fmt: skip


def asked(letter, escalate, abort, revoke, reason="because"):
    return {
        "send_to_dead_letter_queue": bool(letter), "escalate": bool(escalate),
        "abort": bool(abort), "emit_system_revocation": bool(revoke), "reason": reason,
    }  # fmt: skip


any_flags = st.tuples(*[st.booleans()] * 4).map(lambda four: asked(*four))


def test_the_table_has_every_combination():
    assert set(TABLE) == set(product((0, 1), repeat=4))


@pytest.mark.parametrize(("four", "ends"), TABLE.items())
def test_steps_and_result_are_those_of_the_specification(four, ends):
    flags = Flags(**asked(*four))
    assert (tuple(flags.steps()), flags.result) == ends


@pytest.mark.parametrize("form", [Flags, RevocationResponse])
@pytest.mark.parametrize(("four", "ends"), TABLE.items())
def test_carrying_out_does_every_step_but_the_abort_which_the_result_tells(four, ends, form):
    done = []
    outcome = process_revocation_flags(
        form(**asked(*four)), lambda step, why: done.append((step, why))
    )
    steps, result = ends
    assert done == [(step, "because") for step in steps if step is not ABORT]
    assert outcome == RevocationOutcome(result, "because")


@given(any_flags)
def test_what_is_done_is_in_order_and_nothing_follows_an_abort(given_flags):
    steps = list(Flags(**given_flags).steps())
    order = [step for step in CompensationStep if step in steps]
    assert steps == order
    assert ABORT not in steps[:-1]
    assert not (ABORT in steps and REVOKE in steps)


@given(any_flags)
def test_what_fails_leaves_the_later_steps_undone_and_is_raised(given_flags):
    flags = Flags(**given_flags)
    wanted = [step for step in flags.steps() if step is not ABORT]
    done = []

    def carry_out(step, _why):
        if len(done) == len(wanted) - 1:
            raise OSError("away")
        done.append(step)

    if not wanted:
        return
    with pytest.raises(OSError, match="away"):
        process_revocation_flags(flags, carry_out)
    assert done == wanted[:-1]


@pytest.mark.parametrize(("four", "ends"), TABLE.items())
def test_flags_in_a_response_are_carried_out_at_once(four, ends):
    done = []
    response = BusinessResponse(revocation=RevocationResponse(**asked(*four)))
    outcome = handle_business_response(response, lambda step, _why: done.append(step))
    assert outcome == RevocationOutcome(ends[1], "because")
    assert done == [step for step in ends[0] if step is not ABORT]


@pytest.mark.parametrize(
    "response",
    [
        BusinessResponse(),
        BusinessResponse(events=EventBook()),
        BusinessResponse(notification=Notification()),
    ],
    ids=["nothing", "no pages", "a notification"],
)
def test_of_other_responses_nothing_is_carried_out(response):
    handle_business_response(response, lambda *_said: pytest.fail("nothing was asked for"))
    assert not isinstance(handle_business_response(response, print), RevocationOutcome)
