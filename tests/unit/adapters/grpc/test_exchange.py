from __future__ import annotations

from dataclasses import replace
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.adapters.grpc.exchange import (
    book_of,
    book_request,
    command_metadata,
    command_request,
    decision_of,
)
from angzarr.aggregates.book import Address, Book, Snapshot
from angzarr.aggregates.command import Command, MergeStrategy, Origin
from angzarr.aggregates.wire_form import address_of, book_to_wire, command_from_wire
from angzarr.errors import DecodeError, UnserializableEvent
from angzarr.events.event import Event
from angzarr.wire.book_pb2 import CommandBook
from angzarr.wire.identity_pb2 import Cover

ADDRESS = Address("counter", "c-1")
ORIGIN = Origin(saga="seat", source=Address("table", "t-1"), sequence=4)


def command(origin: Origin | None = None, **fields) -> Command:
    given = {"id": "c-id", "type": "Increment", "data": {"by": 1}, "domain": "counter"}
    event = Event(**given | {"root": "c-1", "correlation_id": "flow"} | fields)
    return Command(event=event, origin=origin, merge=MergeStrategy.STRICT)


def written(**fields) -> bytes:
    event = Event(id="e", type="Counted", data=1, sequence=0)
    fields = {"address": ADDRESS, "events": (event,), "next_sequence": 1} | fields
    return book_to_wire(Book(**fields)).SerializeToString()


def test_a_command_is_read_as_it_was_sent():
    sent = command(origin=ORIGIN)
    read = command_from_wire(
        CommandBook.FromString(command_request(sent)), id="c-id", saga=sent.origin.saga
    )
    assert read == sent


def test_a_book_is_asked_for_by_its_cover():
    assert address_of(Cover.FromString(book_request(ADDRESS))) == ADDRESS


@pytest.mark.parametrize(
    "unfit",
    [
        {"sequence": -1},
        {"sequence": 2**32},
        {"correlation_id": "\ud800"},
        {"root": "sixteen letters!"},
        {"type": "\ud800"},
        {"data": {1, 2}},
    ],
)
def test_a_command_that_the_wire_cannot_carry_is_refused(unfit):
    with pytest.raises(UnserializableEvent):
        command_request(command(**unfit))


def test_metadata_leave_out_what_there_is_not():
    assert dict(command_metadata(command(correlation_id=None, sequence=3))) == {
        "angzarr-event-id": "c-id"
    }


def test_what_a_saga_expects_is_told_in_metadata():
    assert dict(command_metadata(command(ORIGIN, sequence=0)))["angzarr-sequence"] == "0"
    assert "angzarr-sequence" not in dict(command_metadata(command(ORIGIN)))


@given(st.text())
def test_any_id_comes_back_from_printable_ascii(text):
    told = dict(command_metadata(command(correlation_id="x" + text)))["angzarr-correlation-id"]
    assert told.isascii()
    assert told.isprintable()
    assert " " not in told
    assert unquote(told, errors="surrogatepass") == "x" + text


def test_a_plain_id_is_sent_as_it_is():
    plain = "0198c7d1-4a3e:seat/1~?&=!"
    assert dict(command_metadata(command(id=plain)))["angzarr-event-id"] == plain


def test_an_answer_is_the_decision_of_its_command():
    decided = decision_of(written(), command())
    assert decided.cause == "c-id"
    assert [(one.type, one.data, one.sequence) for one in decided.events] == [("Counted", 1, 0)]


def test_an_error_shows_no_more_of_a_strange_address_than_fits_a_line():
    strange = written(address=Address("counter", "\x1b[2J" + "x" * 5_000))
    with pytest.raises(DecodeError) as raised:
        decision_of(strange, command())
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < 300


def test_a_book_may_begin_at_its_snapshot():
    covered = replace(book_of(written(), ADDRESS), events=())
    snapshot = Snapshot(sequence=1, state=3)
    found = book_of(written(events=(), snapshot=snapshot), ADDRESS)
    assert found == replace(covered, snapshot=snapshot)


def test_a_book_without_its_number_is_as_long_as_its_pages():
    assert book_of(written(next_sequence=0), ADDRESS).next_sequence == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"next_sequence": 2},
        {"events": ()},
        {"snapshot": Snapshot(sequence=2, state=1)},
        {"events": (Event(id="e", type="Counted", data=1, sequence=1),), "next_sequence": 2},
    ],
)
def test_a_book_that_is_not_whole_is_refused(fields):
    with pytest.raises(DecodeError, match="holes"):
        book_of(written(**fields), ADDRESS)


def with_foreign_snapshot(first: int) -> bytes:
    """A book of three events, of which those from *first* on are there, as others write it."""
    events = tuple(
        Event(id="e", type="Counted", data=number, sequence=number) for number in range(first, 3)
    )
    found = book_to_wire(Book(address=ADDRESS, events=events, next_sequence=3))
    found.snapshot.sequence = 2
    found.snapshot.state.Pack(Cover(domain="whatever their state is"))
    return found.SerializeToString()


def test_a_snapshot_of_another_language_is_left_out_where_all_pages_are_there():
    found = book_of(with_foreign_snapshot(0), ADDRESS)
    assert found.snapshot is None
    assert [event.data for event in found.events] == [0, 1, 2]


def test_a_book_that_only_another_language_can_read_is_refused():
    with pytest.raises(DecodeError, match="begins behind"):
        book_of(with_foreign_snapshot(2), ADDRESS)
