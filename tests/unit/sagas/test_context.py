"""What whoever compensates knows of a rejected command, from each form in which it is told."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from angzarr.aggregates.book import Address
from angzarr.aggregates.command import Command, Origin
from angzarr.aggregates.wire_form import command_to_wire
from angzarr.errors import DecodeError
from angzarr.events.event import Event
from angzarr.sagas.rejection import CompensationContext, rejection_of
from angzarr.sagas.rejection_answers import notification_of, revoke_command
from angzarr.wire.identity_pb2 import Cover
from angzarr.wire.rejection_pb2 import Notification, RejectionNotification, RevokeEventCommand

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
ORIGIN = Origin(saga="seating", source=Address("player", "p-1"), sequence=3)
COMMAND = Command(
    event=Event(id="c-1", type="SeatPlayer", data={"player_id": "p-1"}, domain="table", root="t-1",
                correlation_id="flow"),
    origin=ORIGIN,
)  # fmt: skip
CONTEXT = CompensationContext(
    saga_origin=ORIGIN, rejection_reason="full", rejected_command=COMMAND, correlation_id="flow"
)


class SeatPlayer(BaseModel):
    player_id: str


def known(context):
    """Return what the wire carries of *context*: the id of a command has no field there."""
    event = replace(context.command, id="")
    command = replace(context.rejected_command, event=event, merge=None)
    return replace(context, rejected_command=command)


def test_of_a_rejected_command_with_an_origin_all_is_known():
    assert CompensationContext.from_rejected_command(COMMAND, "full") == CONTEXT
    assert CompensationContext.of(rejection_of(COMMAND, ORIGIN, "full", NOW)) == CONTEXT
    assert CONTEXT.command is COMMAND.event
    assert CONTEXT.command_as(SeatPlayer) == SeatPlayer(player_id="p-1")


def test_a_command_that_does_not_fit_the_type_asked_for_is_an_error():
    odd = replace(CONTEXT, rejected_command=Command(event=replace(COMMAND.event, data={})))
    with pytest.raises(DecodeError, match="player_id"):
        odd.command_as(SeatPlayer)


WITHOUT = replace(COMMAND, origin=None)


@pytest.mark.parametrize("rejected", [WITHOUT, command_to_wire(WITHOUT)], ids=["ours", "wire"])
def test_a_command_that_no_saga_sent_has_no_context(rejected):
    assert CompensationContext.from_rejected_command(rejected, "full") is None


def test_nor_has_one_that_is_told_of():
    wire = command_to_wire(WITHOUT)
    note = Notification()
    note.payload.Pack(RejectionNotification(rejected_command=wire))
    assert CompensationContext.from_notification(note) is None
    assert CompensationContext.from_revoke_command(RevokeEventCommand(rejected_command=wire)) is (
        None
    )


def test_a_command_of_the_wire_is_given_the_name_of_its_saga():
    read = CompensationContext.from_rejected_command(
        command_to_wire(COMMAND), "full", saga="seating"
    )
    assert known(read) == known(CONTEXT)


def test_what_a_notification_tells_is_read_again():
    note = Notification.FromString(notification_of(CONTEXT, NOW).SerializeToString())
    assert known(CompensationContext.from_notification(note)) == known(CONTEXT)


def test_what_the_older_form_tells_is_read_again():
    told = RevokeEventCommand.FromString(revoke_command(CONTEXT).SerializeToString())
    assert known(CompensationContext.from_revoke_command(told)) == known(CONTEXT)


_key = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=15)
_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)
_place = st.builds(Address, st.just("player"), st.uuids().map(str), st.just("") | _key)


@given(saga=_key, source=_place, sequence=st.integers(0, 2**30), target=_place, reason=st.text(),
       data=_json, flow=st.none() | _key)  # fmt: skip
def test_a_notification_tells_all_of_any_rejection(
    saga, source, sequence, target, reason, data, flow
):
    event = Event(id="c-1", type="Seat", data=data, domain=target.domain, root=target.root,
                  edition=target.edition or None, correlation_id=flow)  # fmt: skip
    origin = Origin(saga=saga, source=source, sequence=sequence)
    context = CompensationContext.from_rejected_command(Command(event=event, origin=origin), reason)
    note = Notification.FromString(notification_of(context, NOW).SerializeToString())
    assert known(CompensationContext.from_notification(note)) == known(context)


# -- what is forged ------------------------------------------------------------------------------


def refused(note):
    with pytest.raises(DecodeError) as caught:
        CompensationContext.from_notification(note)
    return str(caught.value)


def test_a_notification_of_something_else_says_what_it_holds():
    note = Notification()
    assert refused(note) == "the notification holds nothing, not angzarr.RejectionNotification"
    note.payload.Pack(Cover(domain="s3cret"))
    said = refused(note)
    assert said == "the notification holds angzarr.Cover, not angzarr.RejectionNotification"


def packed(value, name="angzarr.RejectionNotification"):
    return Notification(payload=AnyMessage(type_url=f"type.googleapis.com/{name}", value=value))


WHOLE = notification_of(CONTEXT, NOW).payload.value


def test_a_truncated_notification_is_refused():
    """Cut between two fields it is a shorter message, which lacks its command or its reason."""
    for length in range(len(WHOLE)):
        try:
            context = CompensationContext.from_notification(packed(WHOLE[:length]))
        except DecodeError:
            continue
        assert context.rejection_reason == "", length


def test_a_command_book_of_no_or_many_pages_is_refused():
    book = command_to_wire(COMMAND)
    for pages in ([], [*book.pages, *book.pages]):
        odd = type(book)(cover=book.cover, pages=pages)
        note = packed(RejectionNotification(rejected_command=odd).SerializeToString())
        assert "a command book has one page" in refused(note)


@pytest.mark.parametrize(
    "command",
    [AnyMessage(), AnyMessage(type_url="x/angzarr.Cover", value=b"\xff"),
     AnyMessage(type_url="x/angzarr.worker.JsonMessage", value=b"\x12\x03nan"),
     AnyMessage(type_url="x/angzarr.worker.JsonMessage", value=b"\xff\xff")],
    ids=["empty", "cover", "no JSON", "damaged"],
)  # fmt: skip
def test_a_forged_command_is_refused(command):
    book = command_to_wire(COMMAND)
    book.pages[0].command.CopyFrom(command)
    refused(packed(RejectionNotification(rejected_command=book).SerializeToString()))


def test_the_root_of_a_cover_that_is_no_text_is_refused():
    book = command_to_wire(COMMAND)
    book.pages[0].header.angzarr_deferred.source.root.value = b"\xff\xfe"
    said = refused(packed(RejectionNotification(rejected_command=book).SerializeToString()))
    assert "neither a UUID nor text" in said


@given(st.binary(max_size=300))
def test_any_bytes_are_a_context_or_refused(raw):
    with suppress(DecodeError):
        CompensationContext.from_notification(packed(raw))


@given(st.integers(0, len(WHOLE) - 1), st.integers(0, 255))
def test_any_changed_byte_leaves_a_context_or_is_refused(place, byte):
    changed = bytearray(WHOLE)
    changed[place] = byte
    with suppress(DecodeError):
        CompensationContext.from_notification(packed(bytes(changed)))


@given(st.binary(max_size=200))
def test_any_bytes_of_the_older_form_are_a_context_or_refused(raw):
    try:
        told = RevokeEventCommand.FromString(raw)
    except Exception:
        return
    with suppress(DecodeError):
        CompensationContext.from_revoke_command(told)
