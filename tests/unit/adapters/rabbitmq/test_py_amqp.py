"""What is added to py-amqp: readable frames, a silent broker that is asked, buffered writes."""

from __future__ import annotations

import struct
from types import SimpleNamespace

import pytest
from amqp.basic_message import Message
from amqp.exceptions import RecoverableConnectionError
from amqp.serialization import decode_properties_basic, dumps

from angzarr.adapters.rabbitmq import py_amqp as module
from angzarr.adapters.rabbitmq.py_amqp import (
    ANSWERED_WITHIN,
    ASKED_AFTER,
    NOT_READY_AFTER,
    AnswerCheck,
    WriteBuffer,
    frame_handler,
    readable,
)
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


class Socket:
    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(bytes(data))


@pytest.fixture
def socket() -> Socket:
    return Socket()


@pytest.fixture
def buffer(socket: Socket) -> WriteBuffer:
    made = WriteBuffer()
    made.frame_writer(SimpleNamespace(frame_max=131_072), socket)
    return made


def test_a_frame_is_written_at_once(buffer: WriteBuffer, socket: Socket) -> None:
    buffer.write(b"a")
    buffer.write(b"b")
    assert socket.written == [b"a", b"b"]


def test_buffered_frames_are_one_write_in_their_order(buffer: WriteBuffer, socket: Socket) -> None:
    frame = bytearray(b"a")  # py-amqp reuses one buffer for all frames
    with buffer.buffered():
        buffer.write(memoryview(frame))
        frame[:] = b"b"
        buffer.write(memoryview(frame))
        assert socket.written == []
    buffer.write(b"c")
    assert socket.written == [b"ab", b"c"]


def test_nothing_is_written_where_nothing_was_held(buffer: WriteBuffer, socket: Socket) -> None:
    with buffer.buffered():
        pass
    assert socket.written == []


def test_what_was_held_is_written_though_the_block_fails(
    buffer: WriteBuffer, socket: Socket
) -> None:
    with pytest.raises(KeyError), buffer.buffered():  # noqa: PT012  the block is what fails
        buffer.write(b"a")
        raise KeyError
    assert socket.written == [b"a"]


def test_no_more_than_a_bound_is_held(
    buffer: WriteBuffer, socket: Socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_BUFFERED", 3)
    with buffer.buffered():
        for letter in b"abcd":
            buffer.write(bytes([letter]))
        assert socket.written == [b"abc"]
    assert socket.written == [b"abc", b"d"]


def test_a_connection_made_anew_has_nothing_held(buffer: WriteBuffer) -> None:
    fresh = Socket()
    with buffer.buffered():
        buffer.write(b"a")
        buffer.frame_writer(SimpleNamespace(frame_max=131_072), fresh)
        buffer.write(b"b")
    assert fresh.written == [b"b"]


class Line:
    """A connection whose other end says what the test says, and what checks it."""

    def __init__(self) -> None:
        self.now, self.asked, self.is_cut = 1000.0, 0, False
        self.bytes_recv, self.blocked = 0, False
        channel = SimpleNamespace(is_open=True, send_method=self._ask)
        self.channels = {0: None, 1: channel}
        self.answer_check = AnswerCheck(lambda: self.now)

    def _ask(self, *_: object) -> None:
        self.asked += 1

    def collect(self) -> None:
        self.is_cut = True

    def look(self, after: float, *, heard: bool = False) -> None:
        self.now += after
        self.bytes_recv += heard
        self.answer_check.look(self)


def test_a_silent_rabbitmq_is_asked_once_and_lost_when_it_gives_no_answer() -> None:
    line = Line()
    line.look(ASKED_AFTER)
    assert line.asked == 0
    line.look(1)
    line.look(ANSWERED_WITHIN)
    assert line.asked == 1
    with pytest.raises(RecoverableConnectionError, match="said nothing for 27 s"):
        line.look(1)
    assert line.is_cut


def test_any_word_is_an_answer_and_the_silence_begins_anew() -> None:
    line = Line()
    for _ in range(5):
        line.look(ASKED_AFTER + 1)
        line.look(ANSWERED_WITHIN, heard=True)
        assert line.answer_check.silence() == 0
    assert line.asked == 5


def test_who_read_nothing_for_long_reads_the_answer_before_the_silence_is_judged() -> None:
    line = Line()
    line.look(ASKED_AFTER + 1)
    line.look(10 * ANSWERED_WITHIN, heard=True)  # a solo pool ran a task meanwhile
    line.look(ASKED_AFTER)


def test_a_rabbitmq_that_reads_nothing_now_is_not_asked_and_not_lost() -> None:
    line = Line()
    line.blocked = True
    for _ in range(10):
        line.look(ASKED_AFTER + ANSWERED_WITHIN)
    assert (line.asked, line.answer_check.silence()) == (0, 0)


def test_a_connection_without_a_channel_is_not_asked() -> None:
    line = Line()
    line.channels[1].is_open = False
    for _ in range(3):
        line.look(ASKED_AFTER + ANSWERED_WITHIN)


def test_a_worker_is_not_ready_before_the_connection_counts_as_lost() -> None:
    line = Line()
    line.look(ASKED_AFTER + 1)
    line.now += NOT_READY_AFTER - ASKED_AFTER
    assert line.answer_check.silence() > NOT_READY_AFTER
    assert NOT_READY_AFTER < ASKED_AFTER + ANSWERED_WITHIN
