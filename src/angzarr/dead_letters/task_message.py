"""Message and Event ↔ the protobuf message TaskMessage, without loss."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple

from google.protobuf.timestamp_pb2 import Timestamp

from angzarr.dead_letters.bounds import LETTER, check_texts, is_within
from angzarr.dead_letters.text import (
    from_json_text,
    read_json_text,
    to_json_text,
    valid_text,
)
from angzarr.errors import DecodeError
from angzarr.events.event import Event, Message, Priority
from angzarr.payloads.store import PayloadReference, StorageKind
from angzarr.runtime.json_bounds import Bounds
from angzarr.wire import book_pb2
from angzarr.wire.dead_letter_pb2 import PayloadRetrievalFailedDetails
from angzarr.wire.worker_pb2 import EventFacts, TaskMessage

_MAX_INT32: Final = 2**31
MAX_UINT32: Final = 2**32
_MAX_UINT64: Final = 2**64
#: The optional texts of EventFacts, each with its name in JSON.
EVENT_TEXTS: Final[Mapping[str, str]] = {
    "domain": "domain",
    "root": "root",
    "edition": "edition",
    "correlation_id": "correlationId",
    "causation_id": "causationId",
    "tenant_id": "tenantId",
    "traceparent": "traceparent",
}

_STR: Final = frozenset({str})
_read_json_at = json.JSONDecoder().raw_decode
#: What JSON takes for white space.
_SPACES: Final = " \t\n\r"
#: Characters of a text that is remembered to be JSON.
_SHORT: Final = 200


class Body(NamedTuple):
    """The three JSON texts that a protocol 2 body consists of, verbatim."""

    args: str
    kwargs: str
    embed: str


class Split(NamedTuple):
    """A body taken apart, and the first of its args, None where there is none."""

    body: Body
    first: Any


class Held(NamedTuple):
    """The fields of a TaskMessage; `payload` says where the body is if it is elsewhere."""

    message: Message
    event: Event | None = None
    payload: PayloadReference | None = None


#: Kinds of payload stores by their numbers; one that is new to us is unspecified.
_KINDS: Final = {
    book_pb2.PAYLOAD_STORAGE_TYPE_FILESYSTEM: StorageKind.FILESYSTEM,
    book_pb2.PAYLOAD_STORAGE_TYPE_GCS: StorageKind.GCS,
    book_pb2.PAYLOAD_STORAGE_TYPE_S3: StorageKind.S3,
}
STORAGE_NUMBERS: Final = {kind: number for number, kind in _KINDS.items()}


def write_message(
    message: Message, event: Event | None, payload: PayloadReference | None = None
) -> TaskMessage:
    """All three as they travel; numbers no broker takes are left out."""
    written = TaskMessage(
        task=valid_text(message.task),
        content_type=valid_text(message.content_type),
        content_encoding=valid_text(message.content_encoding),
        headers=to_json_text(dict(message.headers)),
        queue=valid_text(message.queue),
        exchange=valid_text(message.exchange),
        routing_key=valid_text(message.routing_key),
        properties=to_json_text(dict(message.properties)) if message.properties else "",
    )
    split = split_body(message.body)
    if split:
        written.args, written.kwargs, written.embed = split.body
    else:
        written.raw_body = message.body
    if message.priority is not None and in_int32(message.priority):
        written.priority = message.priority
    if event is not None:
        written.event.CopyFrom(_write_event(event, split.first if split else None))
    if payload is not None:
        written.payload.CopyFrom(_write_payload(payload))
        if payload.encoding:
            written.payload_encoding = payload.encoding
            written.unpacked_size = payload.unpacked_size
            written.unpacked_hash = bytes.fromhex(payload.unpacked_sha256)
    return written


def read_message(written: TaskMessage, bounds: Bounds = LETTER) -> Held:
    """The parts that `write_message` was given; raises DecodeError, ValueError or TypeError."""
    body = Body(written.args, written.kwargs, written.embed)
    check_texts((*body, written.headers, written.properties, written.event.data), bounds)
    message = Message(
        body=join_body(body) if any(body) else written.raw_body,
        content_type=written.content_type,
        content_encoding=written.content_encoding,
        headers=_json_object(written.headers, "headers"),
        queue=written.queue,
        exchange=written.exchange,
        routing_key=written.routing_key,
        priority=written.priority if written.HasField("priority") else None,
        properties=_json_object(written.properties, "properties"),
    )
    event = _read_event(written.event, body) if written.HasField("event") else None
    payload = _read_payload(written) if written.HasField("payload") else None
    return Held(message, event, payload)


def split_body(body: bytes) -> Split | None:
    """The parts of a protocol 2 body, or None where joining them would not restore it.

    Also None where a letter could not be read that holds it as JSON.
    """
    if not is_within(body):
        return None
    try:
        text = body.decode()
        args, end = _read_json_at(text, 1)
        _, kwargs_end = _read_json_at(text, end + 2)
        _, embed_end = _read_json_at(text, kwargs_end + 2)
    except (ValueError, RecursionError):
        return None
    parts = Body(text[1:end], text[end + 2 : kwargs_end], text[kwargs_end + 2 : embed_end])
    return Split(parts, _first(args)) if join_body(parts) == body else None


def time_in(stamp: Timestamp) -> datetime | None:
    """*stamp* in UTC to the microsecond, or None where Python has no such time."""
    try:
        return stamp.ToDatetime(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def join_body(body: Body) -> bytes:
    """The body that has these parts."""
    return f"[{body.args}, {body.kwargs}, {body.embed}]".encode()


def _write_payload(payload: PayloadReference) -> book_pb2.PayloadReference:
    written = book_pb2.PayloadReference(
        storage_type=STORAGE_NUMBERS.get(payload.kind),
        uri=valid_text(payload.uri),
        content_hash=bytes.fromhex(payload.sha256),
        original_size=payload.size,
    )
    if payload.stored_at is not None:
        written.stored_at.FromDatetime(payload.stored_at)
    return written


def write_retrieval(
    details: PayloadRetrievalFailedDetails, payload: PayloadReference, error: str
) -> None:
    """Write into *details* that the body at *payload* could not be fetched, and why."""
    details.storage_type = STORAGE_NUMBERS.get(
        payload.kind, book_pb2.PAYLOAD_STORAGE_TYPE_UNSPECIFIED
    )
    details.uri = valid_text(payload.uri)
    details.content_hash = bytes.fromhex(payload.sha256)
    details.original_size = payload.size
    details.error = valid_text(error)


def _read_payload(message: TaskMessage) -> PayloadReference:
    written = message.payload
    return PayloadReference(
        kind=_KINDS.get(written.storage_type, StorageKind.UNSPECIFIED),
        uri=written.uri,
        sha256=written.content_hash.hex(),
        size=written.original_size,
        stored_at=time_in(written.stored_at) if written.HasField("stored_at") else None,
        encoding=message.payload_encoding,
        unpacked_size=message.unpacked_size,
        unpacked_sha256=message.unpacked_hash.hex(),
    )


def _write_event(event: Event, first: Any) -> EventFacts:
    written = EventFacts(
        id=valid_text(event.id),
        type=valid_text(event.type),
        priority=event.priority.value,
        config_pins={valid_text(str(k)): valid_text(str(v)) for k, v in event.config_pins.items()},
    )
    for name in EVENT_TEXTS:
        if (value := getattr(event, name)) is not None:
            setattr(written, name, valid_text(value))
    if event.sequence is not None and in_uint64(event.sequence):
        written.sequence = event.sequence
    if in_uint64(event.depth):
        written.depth = event.depth
    if event.occurred_at is not None:
        written.occurred_at.FromDatetime(event.occurred_at)
    if (data := data_apart(event, first)) is not None:
        written.data = data
    return written


def data_apart(event: Event, first: Any) -> str | None:
    """The JSON of the data of *event* where it is not the *first* of the args, else None.

    Without args the first of them is None. Data that no letter can hold is left to the body.
    """
    try:
        if _is_same(event.data, first):
            return None
    except RecursionError:
        pass
    text = to_json_text(event.data)
    return text if is_within(text) else None  # the body has it, where no other code reads it


def in_int32(number: int) -> bool:
    """True if protobuf's int32 holds *number*."""
    return -_MAX_INT32 <= number < _MAX_INT32


def in_uint64(number: int) -> bool:
    """True if protobuf's uint64 holds *number*."""
    return 0 <= number < _MAX_UINT64


def _read_event(written: EventFacts, body: Body) -> Event:
    if written.HasField("data"):
        data = from_json_text(written.data)
    else:
        data = _first(json.loads(body.args)) if body.args else None
    return Event(
        id=written.id,
        type=written.type,
        data=data,
        sequence=written.sequence if written.HasField("sequence") else None,
        depth=written.depth,
        priority=_priority(written.priority),
        config_pins=dict(written.config_pins),
        occurred_at=time_in(written.occurred_at) if written.HasField("occurred_at") else None,
        **{
            name: getattr(written, name) if written.HasField(name) else None for name in EVENT_TEXTS
        },
    )


def _first(args: Any) -> Any:
    return args[0] if isinstance(args, list) and args else None


def first_arg(body: Body) -> Any:
    """The first of the args, None where there is none; raises ValueError.

    Raises as well where the body joined of these parts would not be split into them again.
    """
    args = read_json_text(body.args)
    if body.args[0] in _SPACES or body.args[-1] in _SPACES:
        raise ValueError(_MORE_THAN_JSON)
    for text in body[1:]:
        check = _check_short if len(text) <= _SHORT else _check
        check(text)
    return _first(args)


def _check(text: str) -> None:
    """Raise ValueError where *text* is no JSON, or has white space around it."""
    read_json_text(text)
    if text[0] in _SPACES or text[-1] in _SPACES:
        raise ValueError(_MORE_THAN_JSON)


#: Nearly all are one of a few.
_check_short: Final = lru_cache(64)(_check)
_MORE_THAN_JSON: Final = "more than one JSON value"


def _is_same(one: object, other: object) -> bool:
    """True if both are equal and of the same types throughout, as 1, 1.0 and True are not."""
    kind = type(one)
    if kind is not type(other):
        return False
    if kind is str or one is None:
        return one == other
    if isinstance(one, dict) and isinstance(other, dict):
        return (
            one.keys() == other.keys()
            and _STR.issuperset(map(type, one))
            and all(map(_is_same, one.values(), map(other.__getitem__, one)))
        )
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_same, one, other))
    return one == other


def _priority(text: str) -> Priority:
    try:
        return Priority(text)
    except ValueError:
        return Priority.DEFAULT


def _json_object(text: str, field: str) -> Mapping[str, Any]:
    value = from_json_text(text) if text else {}
    if not isinstance(value, dict):
        msg = f"the {field} of its TaskMessage are not a JSON object"
        raise DecodeError(msg)
    return value
