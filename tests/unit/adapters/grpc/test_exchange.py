"""What is sent of a command and read of an answer: any answer gives a value or an error of ours."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import unquote

import grpc
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status
from hypothesis import given
from hypothesis import strategies as st

from angzarr.adapters.grpc.exchange import (
    DETAILS,
    ReportedStatus,
    book_of,
    book_request,
    command_metadata,
    command_request,
    decision_of,
    refusal,
    told,
)
from angzarr.aggregates.book import Address, Book, Snapshot
from angzarr.aggregates.command import Command, MergeStrategy, Origin
from angzarr.aggregates.wire_form import address_of, book_from_wire, book_to_wire, command_from_wire
from angzarr.errors import (
    CommandAbortedError,
    CommandRejectedError,
    DecodeError,
    SequenceConflictError,
    UnserializableEvent,
)
from angzarr.events.event import Event
from angzarr.wire.book_pb2 import CommandBook, EventBook
from angzarr.wire.command_service_pb2 import CallStatus
from angzarr.wire.dead_letter_pb2 import SequenceMismatchDetails
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


CONFLICT = grpc.StatusCode.FAILED_PRECONDITION
ABORTED = grpc.StatusCode.ABORTED

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=6,
)


@st.composite
def books(draw) -> Book:
    """Books with something in them, from the beginning or from a snapshot on."""
    address = Address(
        "counter", draw(st.uuids().map(str) | st.just("c-1")), draw(st.sampled_from(["", "e"]))
    )
    covered = draw(st.integers(0, 5))
    first = draw(st.integers(0, covered))
    count = draw(st.integers(max(covered - first, int(covered == 0)), covered - first + 4))
    events = tuple(
        Event(id="e", type=draw(st.just("Counted") | _TEXT), data=draw(_JSON), sequence=number)
        for number in range(first, first + count)
    )
    snapshot = Snapshot(sequence=covered, state=draw(_JSON)) if covered else None
    return Book(address=address, events=events, snapshot=snapshot, next_sequence=first + count)


def packed(message, prefix: str = "type.googleapis.com/") -> AnyMessage:
    return AnyMessage(
        type_url=prefix + message.DESCRIPTOR.full_name, value=message.SerializeToString()
    )


def status(code: grpc.StatusCode, *details: AnyMessage) -> bytes:
    return Status(code=code.value[0], message="said", details=details).SerializeToString()


def in_status(written: EventBook) -> bytes:
    return status(CONFLICT, packed(written))


def bare(written: EventBook) -> bytes:
    return written.SerializeToString()


def conflict(*raw: bytes, address: Address = ADDRESS) -> SequenceConflictError:
    found = refusal(
        ReportedStatus(CONFLICT, "stale", tuple((DETAILS, one) for one in raw)), address
    )
    assert isinstance(found, SequenceConflictError)
    return found


def book(address: Address = ADDRESS, **fields) -> Book:
    event = Event(id="e", type="Counted", data=1, sequence=0)
    return Book(**{"address": address, "events": (event,), "next_sequence": 1} | fields)


# -- conflicts -------------------------------------------------------------------------------------


@given(books(), st.sampled_from([in_status, bare]))
def test_a_book_is_read_out_of_either_encoding(book, encoded):
    written = book_to_wire(book)
    found = conflict(encoded(written), address=book.address).book
    assert found == book_from_wire(written)
    assert (found.next_sequence, len(found.events)) == (book.next_sequence, len(book.events))


@given(books(), st.sampled_from([in_status, bare]), st.data())
def test_what_was_cut_off_is_no_book(book, encoded, data):
    raw = encoded(book_to_wire(book))
    size = data.draw(st.integers(0, len(raw) - 1))
    assert conflict(raw[:size], address=book.address).book is None


def test_no_cut_of_a_bare_book_is_believed():
    events = tuple(Event(id="e", type="Counted", data=n, sequence=n) for n in range(3))
    raw = bare(book_to_wire(book(events=events, next_sequence=3)))
    assert [size for size in range(len(raw)) if conflict(raw[:size]).book is not None] == []
    assert conflict(raw).book is not None


@given(books(), st.sampled_from([in_status, bare]), st.data())
def test_damaged_details_end_in_no_crash_and_no_book_of_another(book, encoded, data):
    raw = bytearray(encoded(book_to_wire(book)))
    place = data.draw(st.integers(0, len(raw) - 1))
    raw[place] ^= data.draw(st.integers(1, 255))
    found = conflict(bytes(raw), address=book.address).book
    assert found is None or found.address == book.address


@given(st.binary(max_size=300), st.sampled_from(list(grpc.StatusCode)))
def test_no_bytes_end_in_a_crash(raw, code):
    refusal(ReportedStatus(code, "", ((DETAILS, raw), ("other", "text"))), ADDRESS)


def test_a_book_that_can_be_read_as_a_status_is_a_book():
    raw = bare(book_to_wire(book()))
    assert CallStatus.FromString(raw).code == 0  # it parses, and has details
    assert len(CallStatus.FromString(raw).details) == 1
    assert conflict(raw).book.next_sequence == 1


def test_a_status_of_another_code_is_forged():
    written = packed(book_to_wire(book()))
    assert conflict(status(ABORTED, written)).book is None
    assert conflict(status(grpc.StatusCode.OK, written)).book is None


def test_a_status_that_is_a_book_as_well_is_no_bare_book():
    forged = CallStatus(code=10).SerializeToString() + bare(book_to_wire(book()))
    assert EventBook.FromString(forged).next_sequence == 1
    assert conflict(forged).book is None


def test_a_book_of_another_aggregate_is_not_believed():
    for other in (("counter", "c-2", ""), ("player", "c-1", ""), ("counter", "c-1", "e")):
        written = book_to_wire(book(Address(*other)))
        assert conflict(in_status(written)).book is None
        assert conflict(bare(written)).book is None


def test_the_first_book_of_the_aggregate_is_taken():
    strange, wanted = (packed(book_to_wire(book(at))) for at in (Address("a", "b"), ADDRESS))
    assert conflict(status(CONFLICT, strange, wanted)).book.address == ADDRESS
    assert conflict(b"\xff", status(CONFLICT, strange), status(CONFLICT, wanted)).book is not None


@pytest.mark.parametrize(
    "fields",
    [
        {"next_sequence": 2},
        {"events": ()},
        {"events": (), "next_sequence": 0},
        {"snapshot": Snapshot(sequence=2, state=1)},
        {"events": (Event(id="e", type="Counted", data=1, sequence=1),), "next_sequence": 2},
        {"events": (Event(id="e", type="Counted", data=1),)},
    ],
)
def test_a_book_with_holes_is_not_believed(fields):
    written = book_to_wire(book(**fields))
    assert conflict(in_status(written)).book is None
    assert conflict(bare(written)).book is None


@pytest.mark.parametrize("name", ["angzarr.EventBook", "io.angzarr.v1.EventBook"])
@pytest.mark.parametrize("prefix", ["type.googleapis.com/", "type.example/a/", "/", ""])
def test_books_of_both_generations_are_read_under_any_prefix(name, prefix):
    one = AnyMessage(type_url=prefix + name, value=bare(book_to_wire(book())))
    assert conflict(status(CONFLICT, one)).book is not None


@pytest.mark.parametrize("name", ["EventBook", "other.EventBook", "angzarr.CommandBook", ""])
def test_details_of_another_type_are_left_alone(name):
    one = AnyMessage(type_url="type.googleapis.com/" + name, value=bare(book_to_wire(book())))
    assert conflict(status(CONFLICT, one)).book is None


def test_a_text_in_the_place_of_details_is_left_alone():
    found = refusal(ReportedStatus(CONFLICT, "stale", ((DETAILS, "text"),)), ADDRESS)
    assert isinstance(found, SequenceConflictError)
    assert found.book is None


# -- what is final ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("package", "strategy", "review"),
    [
        ("angzarr", 3, True),
        ("angzarr", 1, False),
        ("angzarr", 4, False),
        ("io.angzarr.v1", 4, True),
        ("io.angzarr.v1", 3, False),
        ("io.angzarr.v1", 2, False),
    ],
)
def test_what_was_expected_is_read_in_the_numbers_of_its_generation(package, strategy, review):
    details = SequenceMismatchDetails(
        expected_sequence=4, actual_sequence=7, merge_strategy=strategy
    )
    one = AnyMessage(
        type_url=f"type.googleapis.com/{package}.SequenceMismatchDetails",
        value=details.SerializeToString(),
    )
    error = refusal(ReportedStatus(ABORTED, "stale", ((DETAILS, status(ABORTED, one)),)), ADDRESS)
    assert isinstance(error, CommandAbortedError)
    assert (error.expected, error.actual, error.review) == (4, 7, review)


def test_an_abort_that_says_nothing_more_is_final_all_the_same():
    error = refusal(ReportedStatus(ABORTED, "no"), ADDRESS)
    assert isinstance(error, CommandAbortedError)
    assert (str(error), error.expected, error.actual, error.review) == ("no", None, None, False)


@pytest.mark.parametrize("code", [code for code in grpc.StatusCode if code.value[0]])
def test_an_error_info_rejects_under_any_code(code):
    info = packed(ErrorInfo(reason="COMMAND_REJECTED", domain="d", metadata={"a": "b"}))
    said = ReportedStatus(code, "no funds", ((DETAILS, status(code, info)),))
    assert isinstance(refusal(said, ADDRESS), CommandRejectedError)


def test_an_error_info_with_another_reason_rejects_nothing():
    info = packed(ErrorInfo(reason="STALE", domain="d"))
    assert conflict(status(CONFLICT, info), status(CONFLICT, packed(book_to_wire(book())))).book


def test_an_invalid_argument_is_a_rejection():
    error = refusal(ReportedStatus(grpc.StatusCode.INVALID_ARGUMENT, "no\x1b[2J funds"), ADDRESS)
    assert isinstance(error, CommandRejectedError)
    assert str(error) == "no\ufffd[2J funds"


def test_a_reason_is_bounded():
    error = refusal(ReportedStatus(grpc.StatusCode.INVALID_ARGUMENT, "x" * 10_000), ADDRESS)
    assert len(str(error)) == 4_000


_SAYING = {"INVALID_ARGUMENT", "FAILED_PRECONDITION", "ABORTED"}


@pytest.mark.parametrize("code", [code for code in grpc.StatusCode if code.name not in _SAYING])
def test_other_codes_say_nothing_of_the_command(code):
    written = in_status(book_to_wire(book()))
    assert refusal(ReportedStatus(code, "x", ((DETAILS, written),)), ADDRESS) is None


def test_errors_of_asyncio_are_read_alike():
    metadata = grpc.aio.Metadata((DETAILS, in_status(book_to_wire(book()))))
    error = grpc.aio.AioRpcError(CONFLICT, grpc.aio.Metadata(), metadata, details="stale")
    found = refusal(told(error), ADDRESS)
    assert isinstance(found, SequenceConflictError)
    assert found.book.next_sequence == 1
