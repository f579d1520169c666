"""Frames: what RabbitMQ says of a message before its body, read also where py-amqp cannot.

Text that is no UTF-8, a time after the year 9999 or tables nested deeper than Python's stack: on
each py-amqp raises out of the loop that reads, which ends the worker, and the next one that gets
the message (D7). Layout: AMQP 0-9-1, 4.2.6.1.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from amqp import method_framing
from amqp.serialization import decode_properties_basic, loads

from angzarr.events.headers import UNREAD
from angzarr.runtime.failures import is_machine_fault

#: The type of a frame that says how long a body is and which properties its message has.
_HEADER: Final = 2
#: Class, weight and body size, which come before the flags of the properties.
_BEFORE, _FLAGS = 12, 14
#: The basic properties in the order of their flags, by type: text, table, or that many bytes.
_LAYOUT: Final[tuple[str | int, ...]] = (
    "s", "s", "F", 1, 1, "s", "s", "s", "s", 8, "s", "s", "s", "s",
)  # fmt: skip
#: The longest short text, in bytes.
_LONGEST = 255


def frame_handler(connection: Any, callback: Callable[..., Any]) -> Callable[[Any], Any]:
    """Return py-amqp's reader of frames, which reads of the properties what can be read."""
    read = method_framing.frame_handler(connection, callback)

    def on_frame(frame: Any) -> Any:
        try:
            return read(frame)
        except Exception as error:
            if is_machine_fault(error):
                raise
            kind, channel, payload = frame
            if kind != _HEADER or _is_readable(payload):
                raise  # not of this frame, but of what was done with its message
        return read((kind, channel, readable(bytes(payload))))

    return on_frame


def readable(payload: bytes) -> bytes:
    """Return the *payload* of a header frame with all that cannot be read put in other words."""
    (flags,) = struct.unpack_from(">H", payload, _BEFORE)
    at, parts = _FLAGS, [payload[:_FLAGS]]
    for place, kind in enumerate(_LAYOUT):
        if flags & (0x8000 >> place):
            length = _length(payload, at, kind)
            parts.append(_readable_part(payload[at : at + length], kind))
            at += length
    return b"".join(parts)


def _is_readable(payload: bytes) -> bool:
    try:
        decode_properties_basic(payload, _BEFORE)
    except Exception as error:  # py-amqp fails in any way
        if is_machine_fault(error):
            raise
        return False
    return True


def _length(payload: bytes, at: int, kind: str | int) -> int:
    if isinstance(kind, int):
        return kind
    if kind == "s":
        return 1 + payload[at]
    (length,) = struct.unpack_from(">I", payload, at)
    return 4 + int(length)


def _readable_part(part: bytes, kind: str | int) -> bytes:
    if kind == "s":
        text = part[1:].decode("utf-8", "replace").encode()[:_LONGEST]
        text = text.decode("utf-8", "ignore").encode()  # cut between two letters
        return bytes([len(text)]) + text
    if kind == "F":
        try:
            loads("F", part, 0)
        except Exception as error:  # py-amqp fails in any way
            if is_machine_fault(error):
                raise
            name, value = UNREAD.encode(), part[4:]
            entry = bytes([len(name)]) + name + b"x" + struct.pack(">I", len(value)) + value
            return struct.pack(">I", len(entry)) + entry
    return part
