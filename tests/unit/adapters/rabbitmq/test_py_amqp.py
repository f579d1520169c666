"""What RabbitMQ says of a message can be read, whatever its publisher wrote."""

from __future__ import annotations

import struct

import pytest
from amqp.basic_message import Message
from amqp.serialization import decode_properties_basic, dumps

from angzarr.adapters.rabbitmq.py_amqp import frame_handler, readable
from angzarr.events.headers import UNREAD


def header_frame(flags, *parts, size=0):
    return struct.pack(">HHQH", 60, 0, size, flags) + b"".join(parts)


def short(raw):
    return bytes([len(raw)]) + raw


def table(raw):
    return struct.pack(">I", len(raw)) + raw


def entry(name, raw):
    return short(name) + raw


GOOD = table(entry(b"task", b"S" + table(b"t")))
#: A time in milliseconds where seconds are meant.
LATE = table(entry(b"at", b"T" + struct.pack(">Q", 1_700_000_000_000)))
NESTED = b"V"
for _ in range(2000):
    NESTED = b"F" + table(entry(b"a", NESTED))
DEEP = table(entry(b"a", NESTED))
UNKNOWN = table(entry(b"a", b"?"))

CONTENT_TYPE, HEADERS, CORRELATION_ID, TIMESTAMP = 0x8000, 0x2000, 0x0400, 0x0040


def test_text_that_is_no_utf_8_is_read_with_marks_and_all_else_as_it_is():
    frame = header_frame(
        CONTENT_TYPE | HEADERS | CORRELATION_ID | TIMESTAMP,
        short(b"application/json"), GOOD, short(b"caf\xe9"), struct.pack(">Q", 2**64 - 1),
    )  # fmt: skip
    with pytest.raises(UnicodeDecodeError):
        decode_properties_basic(frame, 12)
    found, _ = decode_properties_basic(readable(frame), 12)
    assert found == {
        "content_type": "application/json", "application_headers": {"task": "t"},
        "correlation_id": "caf\ufffd", "timestamp": 2**64 - 1,
    }  # fmt: skip


def test_text_that_grows_by_its_marks_is_cut():
    frame = header_frame(CORRELATION_ID, short(b"\xff" * 255))
    found, _ = decode_properties_basic(readable(frame), 12)
    assert found["correlation_id"] == "\ufffd" * 85


@pytest.mark.parametrize("headers", [LATE, DEEP, UNKNOWN], ids=["late", "deep", "unknown"])
def test_headers_that_cannot_be_read_are_kept_as_they_are(headers):
    frame = header_frame(HEADERS | CORRELATION_ID, headers, short(b"c"))
    with pytest.raises(Exception):  # noqa: B017 - each in a way of its own
        decode_properties_basic(frame, 12)
    found, _ = decode_properties_basic(readable(frame), 12)
    assert found == {"application_headers": {UNREAD: headers[4:]}, "correlation_id": "c"}


class Connection:
    bytes_recv = 0


def deliver(on_frame, header):
    on_frame((1, 1, struct.pack(">HH", 60, 60)))
    return on_frame((2, 1, header))


def test_a_message_with_such_a_property_is_delivered():
    taken = []
    on_frame = frame_handler(Connection(), lambda *given: taken.append(given[-1]))
    deliver(on_frame, header_frame(CORRELATION_ID, short(b"\xe9"), size=2))
    on_frame((3, 1, b"{}"))
    assert [(message.body, message.properties) for message in taken] == [
        (b"{}", {"correlation_id": "\ufffd"})
    ]


def test_what_is_wrong_with_the_taker_of_a_message_is_told_and_it_gets_it_once():
    taken = []

    def take(*_given):
        taken.append(1)
        raise ValueError("of the consumer")

    with pytest.raises(ValueError, match="of the consumer"):
        deliver(frame_handler(Connection(), take), header_frame(CORRELATION_ID, short(b"c")))
    assert taken == [1]


def test_the_layout_is_that_of_py_amqp():
    every = {
        name: {"s": "x", "F": {"a": 1}, "o": 1, "L": 7}[kind] for name, kind in Message.PROPERTIES
    }
    frame = struct.pack(">HHQ", 60, 0, 0) + Message("", **every)._serialize_properties()
    assert readable(frame) == frame
    assert dumps("F", [{"a": 1}]) in frame
