"""Three additions to py-amqp: readable frames, a check that the broker answers, buffered writes.

py-amqp raises on text that is not UTF-8, a time after the year 9999, or tables nested deeper than
Python's stack. That ends the loop, the worker, and the next worker that gets the message (D7).
Layout: AMQP 0-9-1, 4.2.6.1.

A proxy, or a host that hangs, may acknowledge TCP packets and forward nothing. A client that only
waits for messages cannot tell that from an empty queue. And py-amqp makes a system call for each
frame; `WriteBuffer` sends many in one.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from amqp import method_framing, spec
from amqp.exceptions import RecoverableConnectionError
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
    """py-amqp's reader of frames, which reads of the properties what can be read."""
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
    """The *payload* of a header frame with all that cannot be read put in other words."""
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


#: Seconds without a word after which RabbitMQ is asked for one.
ASKED_AFTER: Final = 10.0
#: Seconds that the answer may take: a cluster may pause, and to connect anew costs redeliveries.
ANSWERED_WITHIN: Final = 15.0
#: Seconds of silence from which a worker is not ready: it was asked, and has not answered yet.
NOT_READY_AFTER: Final = 15.0


class AnswerCheck:
    """Watches one connection; used by the thread that reads from it.

    `look` is called when there is nothing to read, so that a thread which was busy elsewhere has
    read the answer before the silence is judged.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._frames = 0
        self._heard_at = monotonic()
        self._asked_at: float | None = None

    def look(self, connection: Any) -> None:
        """Ask RabbitMQ for a word if it is silent; cut *connection* if it stays so.

        Raises RecoverableConnectionError then.
        One that has blocked this connection reads nothing from it: its heartbeats tell then.
        """
        now = self._monotonic()
        if connection.bytes_recv != self._frames or getattr(connection, "blocked", False):
            self._frames, self._heard_at, self._asked_at = connection.bytes_recv, now, None
        elif self._asked_at is not None:
            if now - self._asked_at > ANSWERED_WITHIN:
                # Without a farewell: the peer may not read it either.
                connection.collect()
                msg = f"RabbitMQ said nothing for {now - self._heard_at:.0f} s and gave no answer"
                raise RecoverableConnectionError(msg)
        elif now - self._heard_at > ASKED_AFTER and _ask(connection):
            self._asked_at = now

    def silence(self) -> float:
        """For how many seconds RabbitMQ owes an answer, or was not asked for one."""
        return 0.0 if self._asked_at is None else self._monotonic() - self._heard_at


def _ask(connection: Any) -> bool:
    """Send what RabbitMQ answers and what changes nothing; False if no channel is open.

    It does not wait for the answer: any frame counts.
    """
    for number, channel in connection.channels.items():
        if number and channel is not None and channel.is_open:
            channel.send_method(spec.Channel.Flow, "b", (True,))
            return True
    return False


#: Bytes that are held back at most, so that the broker has work while the rest is made; one frame
#: more may be as large as it allows.
_MOST_BUFFERED: Final = 32 * 1024


class WriteBuffer:
    """Stands between py-amqp's writer of frames and one connection's socket."""

    def __init__(self) -> None:
        self._write: Any = None
        self._held: bytearray | None = None

    def frame_writer(self, connection: Any, transport: Any) -> Any:
        """py-amqp's writer of frames for a *connection* that is being made."""
        self._write, self._held = transport.write, None
        return method_framing.frame_writer(connection, self)

    def write(self, frame: bytes | memoryview) -> None:
        """Write *frame*, or hold it back within `buffered`."""
        if self._held is None:
            self._write(frame)
            return
        self._held += frame  # a copy: py-amqp writes the next one over it
        if len(self._held) >= _MOST_BUFFERED:
            self._flush(self._held)
            self._held.clear()

    @contextmanager
    def buffered(self) -> Iterator[None]:
        """Hold frames back until the block ends, also if it fails; raises what writing does."""
        self._held = bytearray()
        try:
            yield
        finally:
            held, self._held = self._held, None
            self._flush(held)

    def _flush(self, held: bytearray | None) -> None:
        if held:
            self._write(bytes(held))
