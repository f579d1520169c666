"""What reads bytes of a queue, each with its samples and the errors that it declares."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from types import SimpleNamespace

import kombu.exceptions
from amqp.serialization import decode_properties_basic, dumps
from celery.exceptions import InvalidTaskError
from kombu import compression
from kombu.transport.virtual import Message as VirtualMessage
from kombu.utils.json import loads

from angzarr.adapters.celery.envelope import Envelope
from angzarr.adapters.celery.message_check import check_headers, checked_body
from angzarr.adapters.celery.publish.replay_outcomes import _outcome_in
from angzarr.adapters.celery.worker.message_limits import (
    Decompression,
    _ways,
    as_a_whole,
    read_body,
    unpack,
)
from angzarr.adapters.rabbitmq.py_amqp import readable
from angzarr.adapters.redis.damaged import read as read_envelope
from angzarr.adapters.redis.session import _is_whole, _returned
from angzarr.adapters.sqs.letter_messages import as_bytes, told_by
from angzarr.dead_letters import codec
from angzarr.dead_letters.codec import Form
from angzarr.dead_letters.letter import DeadLetter, Reason
from angzarr.delivery.delivery import read as read_delivery
from angzarr.delivery.schedule import read_row, row_of
from angzarr.errors import DecodeError
from angzarr.events.event import Event, Message
from angzarr.events.received import DamagedEnvelope
from angzarr.settings.delivery import MessageSettings

BOUNDS = MessageSettings().bounds
MOST_UNPACKED = MessageSettings().most_unpacked
_NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
_BODY = json.dumps(
    [[{"order_id": "o-1", "lines": [{"sku": "x", "n": 2}]}], {}, {"callbacks": None, "chord": None}]
).encode()
_HEADERS = {
    "lang": "py", "task": "t", "id": "1", "retries": 0, "eta": None, "expires": None,
    "timelimit": [30, None], "angzarr-event-id": "e-1", "angzarr-attempt": 2, "angzarr-hop": 1,
    "angzarr-sequence": 7, "angzarr-config-pins": '{"a": "1"}', "X-DLQ-Attempts": 1,
    "angzarr-waited-for": "2026-03-01T12:00:00+00:00", "angzarr-rest": 40,
    "angzarr-queue": "orders",
}  # fmt: skip


@dataclass(frozen=True)
class Decoder:
    """Reads raw bytes; raises nothing but what is *declared*."""

    read: Callable[[bytes], object]
    samples: Callable[[], Sequence[bytes]]
    declared: tuple[type[Exception], ...]


# -- a message on Redis, from its envelope to the delivery that a handler would be given -----------

_CHANNEL = SimpleNamespace(
    decode_body=lambda body, encoding=None: base64.b64decode(body) if encoding else body
)


def _message(raw: bytes) -> object:
    envelope = read_envelope(raw, loads)
    try:
        message = VirtualMessage(envelope, channel=_CHANNEL)
    except Exception as error:  # the channel sets it aside as well (Channel._read)
        raise DamagedEnvelope(str(error)) from error
    said = Envelope(
        "token", "owner", message.body, message.content_type, message.content_encoding,
        message.headers, message.properties, message.delivery_info,
    )  # fmt: skip
    try:
        read_body(message, BOUNDS)
    except DamagedEnvelope:
        return as_a_whole(message, said).message("q")
    args, kwargs, _ = checked_body(message.payload)
    check_headers(message.headers)
    found = said.message(said.named_queue or said.routing_key)
    return read_delivery(found, args=args, kwargs=kwargs, token="t", owner="o").fingerprint


def _messages() -> list[bytes]:
    envelope = {
        "body": base64.b64encode(_BODY).decode(), "content-encoding": "utf-8",
        "content-type": "application/json", "headers": _HEADERS,
        "properties": {
            "correlation_id": "c", "reply_to": "r", "delivery_mode": 2, "priority": 0,
            "body_encoding": "base64", "delivery_tag": "tag",
            "delivery_info": {"exchange": "", "routing_key": "celery"},
        },
    }  # fmt: skip
    plain = {
        **envelope,
        "body": _BODY.decode(),
        "properties": {**envelope["properties"], "body_encoding": None},
    }
    typed = {
        **envelope,
        "headers": _HEADERS | {"at": {"__type__": "datetime", "__value__": "2026-03-01T12:00:00"}},
    }
    return [json.dumps(one).encode() for one in (envelope, plain, typed)]


# -- a dead letter ---------------------------------------------------------------------------------


@cache
def _letter() -> DeadLetter:
    return DeadLetter(
        id="dlq_1", domain="order", handler="t", reason=Reason.REFUSED, explanation="odd",
        sent_to_dlq_at=_NOW, first_attempt_at=_NOW, last_attempt_at=_NOW, attempts=3,
        message=Message(
            body=_BODY, content_type="application/json", content_encoding="utf-8",
            headers=_HEADERS, queue="orders", priority=3, properties={"correlation_id": "c"},
        ),
        event=Event(
            id="e-1", type="Placed", data={"order_id": "o-1"}, domain="order", root="o-1",
            sequence=7, occurred_at=_NOW,
        ),
    )  # fmt: skip


def _letters(form: Form) -> Callable[[], list[bytes]]:
    return lambda: [codec.encode(_letter(), form).body]


# -- others ----------------------------------------------------------------------------------------


def _header_frame() -> list[bytes]:
    table = dumps("F", [{"task": "t", "id": "1", "retries": 0, "at": _NOW, "x": [1, "a", None]}])
    content = bytes([16]) + b"application/json"
    return [struct.pack(">HHQH", 60, 0, 5, 0xA000) + content + table]


def _frame(raw: bytes) -> object:
    return decode_properties_basic(readable(raw), 12)


def _held(raw: bytes) -> object:
    return _returned(raw, dead=True) if _is_whole(raw) else None


def _outcome(raw: bytes) -> object:
    return _outcome_in(SimpleNamespace(body=raw))


def _outcomes() -> list[bytes]:
    told = {
        "domain": "order", "handler": "t", "event_id": "e", "letter_id": "dlq_1", "replay": 1,
        "outcome": "handled", "reason": "", "at": _NOW.isoformat(), "signature": "",
    }  # fmt: skip
    return [json.dumps(told).encode()]


def _text(raw: bytes) -> object:
    return as_bytes(told_by({}, raw.decode("utf-8", "replace")))


def _unpacked(content_type: str, way: Decompression) -> Decoder:
    pack, _ = compression.get_encoder(content_type)
    return Decoder(
        lambda raw: unpack(way, MOST_UNPACKED, raw),
        lambda: [pack(_BODY * 50), pack(b"[" * 2**25)],
        (ValueError,),
    )


DECODERS = {
    "message": Decoder(
        _message, _messages,
        (DamagedEnvelope, DecodeError, InvalidTaskError, kombu.exceptions.DecodeError,
         kombu.exceptions.ContentDisallowed),
    ),
    "letter-json": Decoder(codec.decode, _letters(Form.JSON), (DecodeError,)),
    "letter-binary": Decoder(
        lambda raw: codec.decode(raw, codec.PROTOBUF_CONTENT_TYPE), _letters(Form.BINARY),
        (DecodeError,),
    ),
    "letter-text": Decoder(
        _text, lambda: [base64.b64encode(_letters(Form.BINARY)()[0]), b'{"Type": "Notification"}'],
        (),
    ),
    "row": Decoder(
        lambda raw: read_row(raw.decode("utf-8", "replace")),
        lambda: [row_of(_letter().message).text.encode()], (DecodeError,),
    ),
    "outcome": Decoder(
        _outcome, _outcomes, (DecodeError, ValueError, TypeError, KeyError, RecursionError)
    ),
    "held": Decoder(_held, lambda: [b"6:orders" + one for one in _messages()], ()),
    # RabbitMQ's own frames are never cut: their lengths are its own.
    "frame": Decoder(_frame, _header_frame, (struct.error, IndexError, UnicodeDecodeError)),
} | {content_type: _unpacked(content_type, way) for content_type, way in _ways()}  # fmt: skip
