"""What was sent at once is read at once, and each message is what py-amqp makes of it."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from amqp import transport as transports
from amqp.basic_message import Message
from amqp.exceptions import UnexpectedFrame
from amqp.serialization import dumps
from hypothesis import given
from hypothesis import strategies as st

from angzarr.adapters.rabbitmq.arrivals import read_waiting
from angzarr.adapters.rabbitmq.channel import RabbitMQChannel
from angzarr.adapters.rabbitmq.py_amqp import frame_handler
from angzarr.adapters.rabbitmq.transport import RabbitMQConnection
from angzarr.events.headers import UNREAD

CONSUMER = "None4"
METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8


def frame(kind: int, payload: bytes, channel: int = 1) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def delivery(
    tag: int, body: bytes = b"{}", header: bytes | None = None, **properties: Any
) -> bytes:
    """A delivery as RabbitMQ sends it; *header* stands in place of its properties."""
    said = dumps("sLbss", (CONSUMER, tag, False, "", "queue"))
    if header is None:
        header = Message("", **properties)._serialize_properties()
    return (
        frame(METHOD, struct.pack(">HH", 60, 60) + said)
        + frame(HEADER, struct.pack(">HHQ", 60, 0, len(body)) + header)
        + (frame(BODY, body) if body else b"")
    )


class Reader:
    """A connection whose other end is held by the test, and what its consumer got."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair()
        transport = transports.TCPTransport("nowhere", 5672)
        transport.sock = self.ours
        transport._setup_transport()
        transport.connected = True
        self.calls = 0
        receive = transport._quick_recv
        transport._quick_recv = lambda size: (self._count(), receive(size))[1]
        self.connection = RabbitMQConnection("nowhere")
        self.connection._transport = transport
        on_method = self.connection.on_inbound_method
        self.connection.on_inbound_frame = frame_handler(self.connection, on_method)
        self.channel = RabbitMQChannel(self.connection, 1)
        self.got: list[Any] = []
        self.channel.callbacks[CONSUMER] = self.got.append

    def _count(self) -> None:
        self.calls += 1

    def read(self, sent: bytes) -> None:
        self.theirs.sendall(sent)
        while read_waiting(self.connection):
            pass

    def read_by_py_amqp(self, sent: bytes) -> None:
        self.theirs.sendall(sent)
        try:
            while True:
                self.connection.drain_events(timeout=0)
        except TimeoutError:
            return

    def told(self) -> list[tuple[Any, ...]]:
        return [(one.body, one.properties, one.delivery_info) for one in self.got]

    def close(self) -> None:
        self.ours.close()
        self.theirs.close()


@pytest.fixture
def reader() -> Iterator[Reader]:
    made = Reader()
    yield made
    made.close()


def both(sent: bytes) -> tuple[list[Any], list[Any]]:
    """What this reader and py-amqp's own make of *sent*."""
    told = []
    for read in (Reader.read, Reader.read_by_py_amqp):
        one = Reader()
        try:
            read(one, sent)
            told.append(one.told())
        finally:
            one.close()
    return told[0], told[1]


TEXTS = st.text(max_size=20)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | TEXTS
    | st.binary(max_size=20)
    | st.just(Decimal("1.5"))
    | st.just(datetime(2026, 11, 29, 12, 0, 0)),  # noqa: DTZ001 - as AMQP has it
    lambda one: st.lists(one, max_size=3) | st.dictionaries(TEXTS, one, max_size=3),
    max_leaves=12,
)
PROPERTIES = st.fixed_dictionaries(
    {},
    optional={
        "content_type": TEXTS,
        "content_encoding": st.sampled_from(["utf-8", "latin-1", "zip", "none", ""]),
        "application_headers": st.dictionaries(TEXTS, VALUES, max_size=6),
        "delivery_mode": st.integers(0, 255),
        "priority": st.integers(0, 255),
        "correlation_id": TEXTS,
        "timestamp": st.integers(0, 2**64 - 1),
        "cluster_id": TEXTS,
    },
)


@given(st.lists(st.tuples(PROPERTIES, st.binary(max_size=50)), min_size=1, max_size=4))
def test_each_message_is_what_py_amqp_makes_of_it(messages):
    sent = b"".join(
        delivery(tag, body, **properties) for tag, (properties, body) in enumerate(messages)
    )
    ours, theirs = both(sent)
    assert ours == theirs
    assert len(ours) == len(messages)


@given(st.data())
def test_properties_of_any_bytes_are_read_as_py_amqp_reads_them_or_kept(data):
    flags = data.draw(st.integers(0, 0xFFFC).map(lambda one: one & ~3))
    header = struct.pack(">H", flags) + data.draw(st.binary(max_size=40))
    results = []
    for read in (Reader.read, Reader.read_by_py_amqp):
        one = Reader()
        try:
            read(one, delivery(1, header=header) + delivery(2))
            results.append(one.told())
        except Exception as error:  # py-amqp fails in any way
            results.append(type(error))
        finally:
            one.close()
    assert results[0] == results[1]


def test_many_messages_are_read_in_one_call(reader):
    reader.read(b"".join(delivery(tag) for tag in range(50)))
    assert [message.delivery_tag for message in reader.got] == list(range(50))
    assert reader.calls == 1


def test_a_message_may_be_cut_anywhere(reader):
    whole = delivery(1, b'{"a": 1}', content_type="application/json")
    for cut in range(1, len(whole)):
        reader.read(whole[:cut])
        reader.read(whole[cut:] + frame(HEARTBEAT, b"", 0))
    assert reader.told() == [reader.told()[0]] * (len(whole) - 1)
    assert reader.connection.bytes_recv == 4 * (len(whole) - 1)


def test_py_amqp_goes_on_where_this_reader_stopped(reader):
    whole = delivery(1) + delivery(2)
    for cut in range(1, len(whole)):
        reader.got.clear()
        reader.read(whole[:cut])
        reader.theirs.sendall(whole[cut:])
        while len(reader.got) < 2:
            reader.connection.drain_events(timeout=1)
        assert [message.delivery_tag for message in reader.got] == [1, 2]


def test_who_waits_for_an_answer_amid_what_was_read_gets_it_in_order(reader):
    def take(message: Any) -> None:
        reader.got.append(message)
        if message.delivery_tag == 1:
            reader.connection.drain_events(timeout=1)

    reader.channel.callbacks[CONSUMER] = take
    reader.read(delivery(1) + delivery(2) + delivery(3))
    assert [message.delivery_tag for message in reader.got] == [1, 2, 3]


def test_a_large_body_comes_in_several_frames(reader):
    head = delivery(1, b"x" * 100)
    at = head.index(frame(BODY, b"x" * 100))
    parts = frame(BODY, b"x" * 60) + frame(HEARTBEAT, b"", 0) + frame(BODY, b"x" * 40)
    reader.read(head[:at] + parts + delivery(2))
    assert [message.body for message in reader.got] == [b"x" * 100, b"{}"]


def test_what_cannot_be_read_is_kept_and_what_follows_is_read(reader):
    table = b"\x01a?"
    header = struct.pack(">HI", 0x2000, len(table)) + table
    reader.read(delivery(1, header=header) + delivery(2, priority=3))
    assert [message.properties for message in reader.got] == [
        {"application_headers": {UNREAD: table}}, {"priority": 3}
    ]  # fmt: skip


def test_a_frame_whose_end_is_not_marked_is_refused(reader):
    with pytest.raises(UnexpectedFrame):
        reader.read(delivery(1)[:-1] + b"\x00" + delivery(2))


def test_a_lost_connection_is_told(reader):
    reader.theirs.close()
    with pytest.raises(OSError, match="unexpectedly closed"):
        read_waiting(reader.connection)
    assert not reader.connection.connected


def test_a_connection_that_was_given_up_hands_out_nothing_more(reader):
    def take(message: Any) -> None:
        reader.got.append(message)
        reader.connection.collect()

    reader.channel.callbacks[CONSUMER] = take
    reader.theirs.sendall(delivery(1) + delivery(2))
    read_waiting(reader.connection)
    assert [message.delivery_tag for message in reader.got] == [1]


@pytest.mark.parametrize("transport", [transports.TCPTransport, transports.SSLTransport])
def test_py_amqp_reads_by_what_is_used_here(transport):
    names = transport._setup_transport.__code__.co_names
    assert "_quick_recv" in names
    assert "_read_buffer" in transport._read.__code__.co_names
