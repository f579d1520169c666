"""Books, commands and payloads ↔ protobuf, as other languages exchange them. Pure.

A payload whose type protobuf knows here travels as that message; any other as a JsonMessage. One
of a type that is unknown here is kept as it came.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from datetime import UTC
from typing import Any, Final
from uuid import UUID

from google.protobuf import any_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.message import DecodeError as ProtobufDecodeError
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from angzarr.aggregates.book import Address, Book, Retention, Snapshot
from angzarr.aggregates.command import Command, MergeStrategy, Origin, id_after
from angzarr.errors import DecodeError, UnserializableEvent
from angzarr.events.event import Event
from angzarr.wire import book_pb2, identity_pb2
from angzarr.wire.worker_pb2 import JsonMessage

#: Under this key stands the value of a payload of an unknown type.
_OPAQUE: Final = "$bytes"
_TYPE_URL: Final = "type.googleapis.com/"
#: The name of a type as it ends the address of one.
_URL_END: Final = re.compile("[^/]+")


def pack(type_name: str, data: Any) -> any_pb2.Any:
    """The payload *data* of a type as an Any; raises UnserializableEvent."""
    packed = any_pb2.Any()
    try:
        if (kept := _kept(type_name, data)) is not None:
            return any_pb2.Any(type_url=_TYPE_URL + type_name, value=kept)
        packed.Pack(_message(type_name, data), deterministic=True)
    except (json_format.ParseError, TypeError, ValueError, AttributeError, RecursionError) as error:
        msg = f"a {type_name} cannot be written as protobuf: {type(error).__name__}"
        raise UnserializableEvent(msg) from error
    return packed


def unpack(packed: any_pb2.Any) -> tuple[str, Any]:
    """The type and the JSON data of a payload; raises DecodeError if it is malformed."""
    name = packed.type_url.rpartition("/")[2]
    if not name:
        msg = "a payload has no type"
        raise DecodeError(msg)
    kind = _known(name)
    if kind is None:
        return name, {_OPAQUE: base64.b64encode(packed.value).decode()}
    try:
        message = kind.FromString(packed.value)
        if isinstance(message, JsonMessage):
            return message.type, json.loads(message.data or "null", parse_constant=_no_constant)
        return name, json_format.MessageToDict(message, preserving_proto_field_name=True)
    except (ProtobufDecodeError, json_format.Error, ValueError, TypeError, RecursionError) as error:
        msg = f"a payload cannot be read as {name}: {type(error).__name__}"
        raise DecodeError(msg) from error


def _message(type_name: str, data: Any) -> Message:
    kind = _known(type_name)
    if kind is None:
        return JsonMessage(type=type_name, data=json.dumps(data, allow_nan=False))
    return json_format.ParseDict(data, kind())


def _known(type_name: str) -> type[Message] | None:
    try:
        found = descriptor_pool.Default().FindMessageTypeByName(type_name)
    except KeyError:
        return None
    return message_factory.GetMessageClass(found)


def _no_constant(name: str) -> Any:
    """Refuse what Python alone takes for JSON: NaN and the infinities."""
    msg = f"{name} is not JSON"
    raise ValueError(msg)


def _kept(type_name: str, data: Any) -> bytes | None:
    """The bytes of a payload that was kept as it came; None for any other."""
    if not isinstance(data, dict) or data.keys() != {_OPAQUE} or not _URL_END.fullmatch(type_name):
        return None
    try:
        value = base64.b64decode(data[_OPAQUE], validate=True)
    except (binascii.Error, ValueError, TypeError):
        return None
    return value if base64.b64encode(value).decode() == data[_OPAQUE] else None


#: The version of a snapshot whose state is in another language's form: no type of ours has it.
FOREIGN_STATE: Final = 0

_UUID_BYTES: Final = 16
_MAX_UINT32: Final = 2**32 - 1
_STRATEGIES: Final = {
    MergeStrategy.COMMUTATIVE: book_pb2.MERGE_COMMUTATIVE,
    MergeStrategy.STRICT: book_pb2.MERGE_STRICT,
    MergeStrategy.AGGREGATE_HANDLES: book_pb2.MERGE_AGGREGATE_HANDLES,
    MergeStrategy.MANUAL: book_pb2.MERGE_MANUAL,
}

# -- covers --------------------------------------------------------------------------------------


def cover_of(address: Address, correlation_id: str | None = None) -> identity_pb2.Cover:
    """The cover of *address*; raises UnserializableEvent for what it cannot carry."""
    try:
        cover = identity_pb2.Cover(domain=address.domain, correlation_id=correlation_id or "")
        if address.root:
            cover.root.value = _root_bytes(address.root)
        if address.edition:
            cover.edition.name = address.edition
    except UnicodeEncodeError as error:
        msg = "a cover carries Unicode only, and there is half a character in an address"
        raise UnserializableEvent(msg) from error
    return cover


def address_of(cover: identity_pb2.Cover) -> Address:
    """The address that *cover* names; what is no UUID is text; raises DecodeError."""
    raw = cover.root.value
    try:
        root = str(UUID(bytes=raw)) if len(raw) == _UUID_BYTES else raw.decode()
    except UnicodeDecodeError as error:
        msg = "the root of a cover is neither a UUID nor text"
        raise DecodeError(msg) from error
    return Address(cover.domain, root, cover.edition.name)


def _root_bytes(root: str) -> bytes:
    try:
        if str(made := UUID(root)) == root:
            return made.bytes
    except ValueError:
        pass
    raw = root.encode()
    if len(raw) == _UUID_BYTES:
        msg = f"root {root!r} has 16 bytes but is not a UUID: other languages would read it as one"
        raise UnserializableEvent(msg)
    return raw


# -- books ---------------------------------------------------------------------------------------


def book_to_wire(book: Book) -> book_pb2.EventBook:
    """*book* as protobuf; the cover has the correlation id of its first event.

    Raises UnserializableEvent.
    """
    flow = book.events[0].correlation_id if book.events else None
    written = book_pb2.EventBook(
        cover=cover_of(book.address, flow), next_sequence=_uint32(book.next_sequence)
    )
    if book.snapshot is not None:
        written.snapshot.CopyFrom(_snapshot(book.snapshot))
    written.pages.extend(_page(event) for event in book.events)
    return written


def book_from_wire(written: book_pb2.EventBook) -> Book:
    """Read a book; raises DecodeError. Payloads of unknown types are kept as they came."""
    address = address_of(written.cover)
    events = tuple(
        _event(page, place, address, written.cover) for place, page in enumerate(written.pages)
    )
    snapshot = _read_snapshot(written.snapshot) if written.HasField("snapshot") else None
    behind = [event.sequence + 1 for event in events if event.sequence is not None]
    covered = snapshot.sequence if snapshot else 0
    return Book(
        address=address,
        events=events,
        snapshot=snapshot,
        next_sequence=written.next_sequence or max(covered, *behind, 0),
    )


def _page(event: Event) -> book_pb2.EventPage:
    page = book_pb2.EventPage(event=pack(event.type, event.data))
    if event.sequence is not None:
        page.header.sequence = _uint32(event.sequence)
    if event.occurred_at is not None:
        page.created_at.FromDatetime(event.occurred_at)
    return page


def _event(
    page: book_pb2.EventPage, place: int, address: Address, cover: identity_pb2.Cover
) -> Event:
    """The event on *page*, whose id is that of its sequence, else of its *place*."""
    if page.WhichOneof("payload") != "event":
        msg = f"a page of {address} holds no event"
        raise DecodeError(msg)
    name, data = unpack(page.event)
    numbered = page.header.WhichOneof("sequence_type") == "sequence"
    sequence = page.header.sequence if numbered else None
    return Event(
        id=id_after("page", *address, f"at {place}" if sequence is None else sequence),
        type=name,
        data=data,
        domain=address.domain,
        root=address.root,
        edition=address.edition or None,
        sequence=sequence,
        correlation_id=cover.correlation_id or None,
        occurred_at=_time(page.created_at) if page.HasField("created_at") else None,
    )


def _snapshot(snapshot: Snapshot) -> book_pb2.Snapshot:
    retention = (
        book_pb2.RETENTION_PERSIST
        if snapshot.retention is Retention.PERSIST
        else book_pb2.RETENTION_DEFAULT
    )
    state = pack("", {"version": snapshot.version, "state": snapshot.state})
    place = _uint32(snapshot.sequence)
    return book_pb2.Snapshot(sequence=place, state=state, retention=retention)


def _read_snapshot(written: book_pb2.Snapshot) -> Snapshot:
    """Read a snapshot; the state of another language's has a version that is not read here."""
    name, data = unpack(written.state)
    ours = not name and isinstance(data, dict) and data.keys() == {"version", "state"}
    return Snapshot(
        sequence=written.sequence,
        state=data["state"] if ours else data,
        version=data["version"] if ours and isinstance(data["version"], int) else FOREIGN_STATE,
        retention=(
            Retention.PERSIST
            if written.retention == book_pb2.RETENTION_PERSIST
            else Retention.DEFAULT
        ),
    )


def _time(stamp: Timestamp) -> Any:
    try:
        return stamp.ToDatetime(tzinfo=UTC)
    except (ValueError, OverflowError) as error:
        msg = "a time is outside of all calendars"
        raise DecodeError(msg) from error


# -- commands ------------------------------------------------------------------------------------


def command_to_wire(command: Command) -> book_pb2.CommandBook:
    """*command* as a book of one page; an origin takes the place of its expectation.

    Raises UnserializableEvent.
    """
    event = command.event
    page = book_pb2.CommandPage(
        command=pack(event.type, event.data),
        merge_strategy=_STRATEGIES[command.merge or MergeStrategy.COMMUTATIVE],
    )
    if command.origin is not None:
        deferred = page.header.angzarr_deferred
        deferred.source.CopyFrom(cover_of(command.origin.source, event.correlation_id))
        deferred.source_seq = _uint32(min(command.origin.sequence, _MAX_UINT32))
    elif event.sequence is not None:
        page.header.sequence = _uint32(event.sequence)
    return book_pb2.CommandBook(cover=cover_of(command.address, event.correlation_id), pages=[page])


def _uint32(number: int) -> int:
    if not 0 <= number <= _MAX_UINT32:
        msg = f"the wire carries sequences from 0 to {_MAX_UINT32}, not {number}"
        raise UnserializableEvent(msg)
    return number


def command_from_wire(
    written: book_pb2.CommandBook, *, id: str | None = None, saga: str = ""
) -> Command:
    """Read the one command of a book; raises DecodeError.

    The header has no field for its *id* and for the name of its *saga*: without an id it has that
    of its bytes.
    """
    page, address = _only_page(written), address_of(written.cover)
    name, data = unpack(page.command)
    which = page.header.WhichOneof("sequence_type")
    event = Event(
        id=id or hashlib.sha256(written.SerializeToString(deterministic=True)).hexdigest(),
        type=name,
        data=data,
        domain=address.domain,
        root=address.root,
        edition=address.edition or None,
        sequence=page.header.sequence if which == "sequence" else None,
        correlation_id=written.cover.correlation_id or None,
    )
    return Command(event=event, origin=_origin(page.header, saga), merge=_merge(page))


def _only_page(written: book_pb2.CommandBook) -> book_pb2.CommandPage:
    if len(written.pages) != 1:
        msg = f"a command book has one page, this one has {len(written.pages)}"
        raise DecodeError(msg)
    if written.pages[0].WhichOneof("payload") != "command":
        raise DecodeError("the page of a command book holds no command")
    return written.pages[0]


def _origin(header: book_pb2.PageHeader, saga: str) -> Origin | None:
    if header.WhichOneof("sequence_type") != "angzarr_deferred":
        return None
    deferred = header.angzarr_deferred
    source = address_of(deferred.source)
    return Origin(saga=saga, source=source, sequence=deferred.source_seq)


def _merge(page: book_pb2.CommandPage) -> MergeStrategy:
    try:
        return MergeStrategy(page.merge_strategy)
    except ValueError as error:
        msg = f"unknown merge strategy {page.merge_strategy}"
        raise DecodeError(msg) from error
