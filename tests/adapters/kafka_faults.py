"""What no client of Kafka does by itself: fail for good when told, write names that are no text."""

from __future__ import annotations

import ctypes
import socket
import struct
from collections.abc import Sequence
from typing import Any

from confluent_kafka import cimpl

_PRODUCE, _VERSION = 0, 3  # API key and version, Kafka's protocol guide
_CASTAGNOLI = 0x82F63B78


def end(client: Any, code: int) -> None:
    """Put *client* into librdkafka's fatal state, as an error *code* of a broker would."""
    librdkafka, handle = _library(client)
    assert librdkafka.rd_kafka_test_fatal_error(handle, code, b"told by a test") == 0


def refuse_on_mock(client: Any, topic: str, codes: Sequence[int]) -> None:
    """Let the mock cluster of *client* have *topic*, and refuse its next batches with *codes*.

    The client was made with ``test.mock.num.brokers``.
    """
    librdkafka, handle = _library(client)
    librdkafka.rd_kafka_handle_mock_cluster.restype = ctypes.c_void_p
    cluster = ctypes.c_void_p(librdkafka.rd_kafka_handle_mock_cluster(handle))
    assert cluster.value, "the client has no mock cluster"
    librdkafka.rd_kafka_mock_topic_create(cluster, topic.encode(), 1, 1)
    errors = (ctypes.c_int * len(codes))(*codes)
    librdkafka.rd_kafka_mock_push_request_errors_array(
        cluster, ctypes.c_int16(_PRODUCE), ctypes.c_size_t(len(codes)), errors
    )


def write_record(
    port: int, topic: str, value: bytes, headers: Sequence[tuple[bytes, bytes]]
) -> int:
    """Write one record to partition 0 of *topic*, which exists; return its offset."""
    name = _short(topic.encode())
    batch = _batch(value, headers)
    partitions = struct.pack(">ii", 1, 0) + struct.pack(">i", len(batch)) + batch
    body = struct.pack(">hhi", -1, -1, 5000) + struct.pack(">i", 1) + name + partitions
    request = struct.pack(">hhi", _PRODUCE, _VERSION, 7) + _short(b"test") + body
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        answer = connection.makefile("rb")
        reply = answer.read(struct.unpack(">i", answer.read(4))[0])
    error, offset = struct.unpack_from(">hq", reply, 4 + 4 + len(name) + 4 + 4)
    assert error == 0, f"Kafka's error {error}"
    return int(offset)


def _library(client: Any) -> tuple[Any, ctypes.c_void_p]:
    librdkafka = ctypes.CDLL(cimpl.__file__)  # looks in the libraries that it is linked to as well
    handle = ctypes.c_void_p.from_address(id(client) + object.__basicsize__)
    librdkafka.rd_kafka_name.restype = ctypes.c_char_p
    assert librdkafka.rd_kafka_name(handle).startswith(b"rdkafka#"), "the handle is elsewhere"
    return librdkafka, handle


def _batch(value: bytes, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return a record batch of version 2 that holds one record without a key."""
    named = b"".join(_long(name) + _long(held) for name, held in headers)
    record = b"\0" + _varint(0) + _varint(0) + _varint(-1) + _long(value)
    record += _varint(len(headers)) + named
    # attributes, last offset's delta, first and last time, no producer, its epoch, its sequence
    facts = struct.pack(">hiqqqhii", 0, 0, 0, 0, -1, -1, -1, 1)
    guarded = facts + _long(record)
    rest = struct.pack(">ibI", -1, 2, _crc32c(guarded)) + guarded  # leader's epoch, version
    return struct.pack(">qi", 0, len(rest)) + rest


def _short(text: bytes) -> bytes:
    return struct.pack(">h", len(text)) + text


def _long(content: bytes) -> bytes:
    return _varint(len(content)) + content


def _varint(number: int) -> bytes:
    left, out = (number << 1) ^ (number >> 63), bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*out, left])


def _crc32c(content: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (_CASTAGNOLI if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
