"""Books and commands as protobuf: there and back, from other languages, and forged."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError as ProtobufDecodeError
from hypothesis import example, given
from hypothesis import strategies as st
from tests.accounts import Account, Deposit, Deposited, command, event
from tests.unit.aggregates.test_payload_form import json_values

from angzarr.aggregates.book import Address, Book, Retention, Snapshot, numbered
from angzarr.aggregates.command import Command, MergeStrategy, Origin
from angzarr.aggregates.wire_form import (
    address_of,
    book_from_wire,
    book_to_wire,
    command_from_wire,
    command_to_wire,
    cover_of,
    pack,
    unpack,
)
from angzarr.errors import BookUnreadable, DecodeError, UnserializableEvent
from angzarr.events.event import Event
from angzarr.wire import book_pb2, identity_pb2
from angzarr.wire.worker_pb2 import JsonMessage

A_UUID = "550e8400-e29b-41d4-a716-446655440000"
MAX_UINT32 = 2**32 - 1

text = st.text()
roots = st.one_of(
    st.uuids().map(str),
    text.filter(lambda root: root and len(root.encode()) != 16),
    st.uuids().map(lambda one: str(one).upper()),
    st.uuids().map(lambda one: one.hex),
)
addresses = st.builds(Address, text, roots, text)
times = st.none() | st.datetimes().map(lambda time: time.replace(tzinfo=UTC))
types = text.map(lambda name: f"x.{name}")


@st.composite
def books(draw: st.DrawFn) -> Book:
    address = draw(addresses)
    first = draw(st.integers(0, MAX_UINT32 - 10))
    covered = draw(st.integers(0, min(first, 3))) if first else 0
    flow = draw(st.none() | text.filter(bool))
    events = [
        Event(
            id="e", type=draw(types), data=draw(json_values), occurred_at=draw(times),
            correlation_id=flow,
        )
        for _ in range(draw(st.integers(0, 3)))
    ]  # fmt: skip
    snapshot = Snapshot(
        sequence=first,
        state=draw(json_values),
        version=draw(st.integers(1, 9)),
        retention=draw(st.sampled_from(Retention)),
    )
    return Book(
        address=address,
        events=numbered(events, address, first - covered),
        snapshot=snapshot if first else None,
        next_sequence=max(first, first - covered + len(events)),
    )


def without_ids(book: Book) -> Book:
    """Return *book* as it can be on the wire: pages have no ids, and no books no flow."""
    return replace(book, events=tuple(replace(one, id="") for one in book.events))


@given(books())
def test_a_book_comes_back(book):
    written = book_pb2.EventBook.FromString(book_to_wire(book).SerializeToString())
    assert without_ids(book_from_wire(written)) == without_ids(book)


@given(books())
def test_pages_of_a_book_that_is_read_have_ids_of_their_own_and_the_same_each_time(book):
    first, second = (book_from_wire(book_to_wire(book)) for _ in range(2))
    assert first == second
    assert len({one.id for one in first.events}) == len(book.events)


def test_pages_without_a_number_have_ids_of_their_own():
    written = book_to_wire(
        Book(address=Address("account", "a"), events=(event(Deposited(cents=1)),) * 2)
    )
    read = book_from_wire(written)
    assert [one.sequence for one in read.events] == [None, None]
    assert len({one.id for one in read.events}) == 2


def test_a_state_is_rebuilt_from_a_book_that_is_read():
    address = Address("account", A_UUID)
    events = numbered([event(Deposited(cents=1))] * 3, address, 0)
    snapshot = Account(Book(address=address))
    book = Book(address=address, events=events, next_sequence=3)
    assert Account(book_from_wire(book_to_wire(book))).state == Account(book).state
    snapshot = Snapshot(sequence=2, state={"cents": 2, "moves": [1, 1]})
    short = replace(book, events=events[2:], snapshot=snapshot)
    assert Account(book_from_wire(book_to_wire(short))).state == Account(book).state


@pytest.mark.parametrize(
    ("pages", "snapshot", "told", "next_sequence"),
    [((), None, 0, 0), ((), None, 5, 5), ((0, 1), None, 0, 2), ((7,), None, 0, 8),
     ((), 4, 0, 4), ((4,), 4, 0, 5), ((2, 3), 9, 0, 9), ((2,), 2, 3, 3)],
)  # fmt: skip
def test_a_book_that_does_not_say_where_it_is_is_behind_its_last_page(
    pages, snapshot, told, next_sequence
):
    written = book_to_wire(
        Book(
            address=Address("account", "a"),
            events=tuple(replace(event(Deposited(cents=1)), sequence=one) for one in pages),
            snapshot=None if snapshot is None else Snapshot(sequence=snapshot, state={}),
            next_sequence=told,
        )
    )
    assert book_from_wire(written).next_sequence == next_sequence


def test_the_snapshot_of_another_language_is_not_taken_for_ours():
    written = book_to_wire(Book(address=Address("account", "a"), next_sequence=3))
    written.snapshot.sequence = 3
    written.snapshot.state.Pack(identity_pb2.Cover(domain="d"))
    book = book_from_wire(written)
    assert not Account.reads(book.snapshot)
    with pytest.raises(BookUnreadable, match="snapshot at 3 of account/a"):
        Account(book)


def test_a_page_that_is_kept_elsewhere_is_malformed():
    written = book_pb2.EventBook(pages=[book_pb2.EventPage()])
    with pytest.raises(DecodeError, match="no event"):
        book_from_wire(written)
    written.pages[0].external.uri = "s3://x"
    with pytest.raises(DecodeError, match="no event"):
        book_from_wire(written)


# -- addresses -------------------------------------------------------------------------------------


@given(addresses, text)
def test_an_address_comes_back(address, flow):
    cover = cover_of(address, flow)
    assert address_of(cover) == address
    assert cover.correlation_id == flow


def test_a_uuid_is_sixteen_bytes_and_any_other_text_is_itself():
    assert cover_of(Address("d", A_UUID)).root.value == UUID(A_UUID).bytes
    for root in (A_UUID.upper(), UUID(A_UUID).hex, f"{{{A_UUID}}}", "o-1"):
        assert cover_of(Address("d", root)).root.value == root.encode()


@given(st.binary(min_size=16, max_size=16))
def test_any_sixteen_bytes_are_a_uuid(raw):
    cover = identity_pb2.Cover(domain="d", root=identity_pb2.UUID(value=raw))
    address = address_of(cover)
    assert address.root == str(UUID(bytes=raw))
    assert cover_of(address) == cover


@pytest.mark.parametrize("root", ["sixteen letters!", "ü" * 8])
def test_a_text_that_would_be_taken_for_a_uuid_is_refused(root):
    with pytest.raises(UnserializableEvent, match="16 bytes"):
        cover_of(Address("d", root))


def test_no_root_is_an_empty_one():
    assert not cover_of(Address("d", "")).HasField("root")
    assert address_of(identity_pb2.Cover()) == Address("", "", "")


# -- commands --------------------------------------------------------------------------------------


@st.composite
def commands(draw: st.DrawFn) -> Command:
    address = draw(addresses)
    origin = draw(
        st.none()
        | st.builds(Origin, saga=text, source=addresses, sequence=st.integers(0, MAX_UINT32))
    )
    sent = Event(
        id=draw(text.filter(bool)), type=draw(types), data=draw(json_values),
        domain=address.domain, root=address.root, edition=address.edition or None,
        sequence=None if origin else draw(st.none() | st.integers(0, MAX_UINT32)),
        correlation_id=draw(st.none() | text.filter(bool)),
    )  # fmt: skip
    return Command(event=sent, origin=origin, merge=draw(st.sampled_from(MergeStrategy)))


@given(commands())
def test_a_command_comes_back(command):
    written = book_pb2.CommandBook.FromString(command_to_wire(command).SerializeToString())
    saga = command.origin.saga if command.origin else ""
    assert command_from_wire(written, id=command.id, saga=saga) == command


def test_a_command_that_leaves_it_to_its_handler_is_commutative_on_the_wire():
    asked = command(Address("account", "a"), Deposit(cents=1))
    written = command_to_wire(asked)
    assert written.pages[0].merge_strategy == book_pb2.MERGE_COMMUTATIVE
    assert command_from_wire(written, id=asked.id).merge is MergeStrategy.COMMUTATIVE


def test_the_origin_of_a_command_takes_the_place_of_what_it_expects():
    origin = Origin(saga="s", source=Address("table", "t", "what-if"), sequence=2**40)
    asked = command(Address("account", "a"), Deposit(cents=1), 3, origin=origin)
    header = command_to_wire(asked).pages[0].header
    assert header.WhichOneof("sequence_type") == "angzarr_deferred"
    assert header.angzarr_deferred.source_seq == MAX_UINT32
    assert header.angzarr_deferred.source.edition.name == "what-if"


def test_a_command_without_an_id_has_that_of_its_bytes():
    one = command_to_wire(command(Address("account", "a"), Deposit(cents=1), 3))
    other = command_to_wire(command(Address("account", "a"), Deposit(cents=1), 4))
    assert command_from_wire(one).id == command_from_wire(one).id
    assert command_from_wire(one).id != command_from_wire(other).id


@pytest.mark.parametrize("count", [0, 2])
def test_a_command_book_holds_one_command(count):
    written = command_to_wire(command(Address("account", "a"), Deposit(cents=1)))
    pages = [written.pages[0]] * count
    with pytest.raises(DecodeError, match="one page"):
        command_from_wire(book_pb2.CommandBook(cover=written.cover, pages=pages))


def test_a_command_that_is_kept_elsewhere_is_malformed():
    page = book_pb2.CommandPage()
    page.external.uri = "s3://x"
    with pytest.raises(DecodeError, match="holds no command"):
        command_from_wire(book_pb2.CommandBook(pages=[page]))


@pytest.mark.parametrize("number", [4, -1, 2**31 - 1])
def test_a_merge_strategy_that_does_not_exist_is_malformed(number):
    written = command_to_wire(command(Address("account", "a"), Deposit(cents=1)))
    written.pages[0].merge_strategy = number
    with pytest.raises(DecodeError, match=f"unknown merge strategy {number}"):
        command_from_wire(written)


def test_what_nobody_here_knows_of_a_header_expects_nothing():
    written = command_to_wire(command(Address("account", "a"), Deposit(cents=1), 3))
    written.pages[0].header.external_deferred.external_id = "x"
    read = command_from_wire(written)
    assert (read.expected, read.origin) == (None, None)


# -- what cannot be written ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"sequence": -1},
        {"sequence": 2**32},
        {"correlation_id": "\ud800"},
        {"domain": "\ud800"},
        {"root": "\ud800"},
        {"edition": "\ud800"},
        {"type": "\ud800"},
        {"data": object()},
    ],
)
def test_what_protobuf_has_no_room_for_is_told(fields):
    asked = command(Address("account", "a"), Deposit(cents=1))
    asked = replace(asked, event=replace(asked.event, **fields))
    with pytest.raises(UnserializableEvent):
        command_to_wire(asked)
    book = Book(address=asked.address, events=(asked.event,))
    with pytest.raises(UnserializableEvent):
        book_to_wire(book)


def test_an_origin_or_a_book_that_protobuf_has_no_room_for_is_told():
    address = Address("account", "a")
    origin = Origin(saga="s", source=Address("table", "\ud800"), sequence=1)
    for one in (origin, replace(origin, source=address, sequence=-1)):
        with pytest.raises(UnserializableEvent):
            command_to_wire(command(address, Deposit(cents=1), origin=one))
    for book in (
        Book(address=address, next_sequence=2**32),
        Book(address=address, snapshot=Snapshot(sequence=-1, state={})),
        Book(address=address, snapshot=Snapshot(sequence=1, state=object())),
    ):
        with pytest.raises(UnserializableEvent):
            book_to_wire(book)


# -- forged bytes ----------------------------------------------------------------------------------

_ADDRESS = Address("account", A_UUID, "what-if")
_DATED = replace(event(Deposited(cents=1)), occurred_at=datetime(2026, 1, 1, tzinfo=UTC))
_BOOK = book_to_wire(
    Book(
        address=_ADDRESS,
        events=numbered([_DATED] * 2, _ADDRESS, 3),
        snapshot=Snapshot(sequence=3, state={"cents": 3}),
        next_sequence=5,
    )
).SerializeToString()
_COMMAND = command_to_wire(
    command(
        _ADDRESS, Deposit(cents=1), origin=Origin(saga="", source=Address("t", "x"), sequence=1)
    )
).SerializeToString()


def damaged(whole: bytes) -> st.SearchStrategy[bytes]:
    """Cut, flip and fill in."""

    @st.composite
    def damage(draw: st.DrawFn) -> bytes:
        raw = bytearray(whole[: draw(st.integers(0, len(whole)))] if draw(st.booleans()) else whole)
        for _ in range(draw(st.integers(0, 4))):
            if raw:
                raw[draw(st.integers(0, len(raw) - 1))] = draw(st.integers(0, 255))
        place = draw(st.integers(0, len(raw)))
        return bytes(raw[:place] + draw(st.binary(max_size=4)) + raw[place:])

    return damage() | st.binary()


def parsed(kind, raw):
    try:
        return kind.FromString(raw)
    except ProtobufDecodeError:
        return None


@given(damaged(_BOOK))
@example(b"")
def test_a_forged_book_is_a_book_or_malformed(raw):
    written = parsed(book_pb2.EventBook, raw)
    if written is None:
        return
    try:
        book = book_from_wire(written)
    except DecodeError:
        return
    with suppress(BookUnreadable):
        Account(book)
    with suppress(UnserializableEvent):
        assert without_ids(book_from_wire(book_to_wire(book))) == without_ids(book)


@given(damaged(_COMMAND))
@example(b"")
def test_a_forged_command_is_a_command_or_malformed(raw):
    written = parsed(book_pb2.CommandBook, raw)
    if written is None:
        return
    try:
        read = command_from_wire(written)
    except DecodeError:
        return
    assert read.id
    assert read.merge in MergeStrategy
    with suppress(UnserializableEvent):
        assert command_from_wire(command_to_wire(read), id=read.id) == read


def test_a_time_outside_of_all_calendars_is_malformed():
    written = book_pb2.EventBook.FromString(_BOOK)
    written.pages[0].created_at.seconds = 2**60
    with pytest.raises(DecodeError, match="calendars"):
        book_from_wire(written)
    written.pages[0].created_at.seconds = 0
    written.pages[0].created_at.nanos = -5
    with pytest.raises(DecodeError, match="calendars"):
        book_from_wire(written)


def test_a_root_that_is_neither_a_uuid_nor_text_is_malformed():
    written = book_pb2.EventBook.FromString(_BOOK)
    written.cover.root.value = b"\xff"
    with pytest.raises(DecodeError, match="neither a UUID nor text"):
        book_from_wire(written)


@pytest.mark.parametrize("address", [Address("d", "\udfff"), Address("d", "r", "\ud800")])
def test_half_a_character_in_an_address_is_refused(address):
    with pytest.raises(UnserializableEvent):
        cover_of(address)


@pytest.mark.parametrize("sequence", [-1, 2**32])
def test_a_sequence_beyond_32_bits_is_refused(sequence):
    event = Event(id="i", type="T", data=None, domain="d", root="r", sequence=sequence)
    with pytest.raises(UnserializableEvent, match="sequences from 0"):
        command_to_wire(Command(event=event))


@pytest.mark.parametrize("data", [None, {"$bytes": "AAAA"}])
def test_half_a_character_in_a_type_is_refused(data):
    with pytest.raises(UnserializableEvent):
        pack("\ud800", data)


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", '{"a": -Infinity}', "{", "1" * 5_000])
def test_what_is_no_json_is_not_read(text):
    packed = AnyMessage()
    packed.Pack(JsonMessage(type="T", data=text))
    with pytest.raises(DecodeError):
        unpack(packed)
