"""Reads all frames that RabbitMQ has sent in one system call, and whole deliveries at once.

py-amqp asks the system three times for each frame, sets the socket's time-out twice, and has three
frames for a message, whose parts it decodes by general code. Here a delivery that is complete is
read by code of its own. What is unusual in any way is left to py-amqp, frame by frame.
Layout: AMQP 0-9-1, 2.3.5 and 4.2.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from struct import error as StructError  # noqa: N812 - it is named so that it reads
from typing import Any, Final

from amqp.basic_message import Message
from amqp.exceptions import UnexpectedFrame

#: Bytes that one call asks for.
_CHUNK: Final = 64 * 1024
#: Type, channel and size of a frame; the size of a message's body; of others.
_HEAD: Final = Struct(">BHI")
_BODY_SIZE: Final = Struct(">Q")
_LONG: Final = Struct(">I")
_FLAGS: Final = Struct(">H")
_METHOD, _HEADER, _BODY, _END = 1, 2, 3, 0xCE
#: Class and method of `basic.deliver`.
_DELIVER: Final = b"\x00\x3c\x00\x3c"
#: Types of values in tables, as py-amqp writes them; all others are unusual.
_TEXT, _NOTHING, _BIT, _TABLE, _ARRAY = b"SVtFA"
_NUMBERS: Final = {ord(kind): Struct(f">{form}") for kind, form in zip("ILld", "iqqd", strict=True)}
#: Bytes of a frame around its payload, before it, and before the flags of a header's properties.
_AROUND, _BEFORE, _BEFORE_FLAGS = 8, 7, 12
#: The properties in the order of their flags; a letter: text or table, a number: so many bytes.
_PROPERTIES: Final = tuple(
    (name, {"o": 1, "L": 8}.get(kind, kind)) for name, kind in Message.PROPERTIES
)
#: What reading something unusual raises; py-amqp reads it then.
_UNUSUAL: Final = (ValueError, IndexError, StructError, RecursionError)


class FrameReader:
    """What was read from one connection and not yet handled; used by the thread that reads.

    It has whole frames only: the rest stands where py-amqp goes on reading.
    """

    def __init__(self) -> None:
        self._data = b""
        self._at = 0

    def fill(self, transport: Any) -> bool:
        """Read what has come without waiting; True if there may be more.

        Raises TimeoutError if nothing has come, and OSError if the connection is lost.
        """
        if self._data:
            return True
        try:
            came = _read(transport)
        except TimeoutError:
            raise
        except OSError:
            transport.connected = False
            raise
        self._data, self._at = transport._read_buffer + came, 0  # noqa: SLF001 - pinned by a test
        transport._read_buffer = b""  # noqa: SLF001
        return len(came) == _CHUNK or _has_decrypted(transport.sock)

    def has_more(self, transport: Any) -> bool:
        """True if there is something to read that makes no descriptor readable."""
        return bool(self._data) or _has_decrypted(transport.sock)

    def handle(self, connection: Any) -> bool:
        """Handle the next frame or delivery of *connection*; False if no whole frame is left.

        Raises what py-amqp does.
        """
        data, at = self._data, self._at
        frame = _frame_at(data, at)
        if frame is None:
            if data:  # py-amqp goes on from here
                connection.transport._read_buffer = data[at:]  # noqa: SLF001
                self._data, self._at = b"", 0
            return False
        kind, number, begin, end = frame
        is_delivery = kind == _METHOD and data.startswith(_DELIVER, begin)
        if not is_delivery or not self._deliver(connection, number, begin, end):
            self._at = end + 1
            connection.on_inbound_frame((kind, number, data[begin:end]))
        return True

    def _deliver(self, connection: Any, number: int, at: int, end: int) -> bool:
        """Hand a whole delivery to its channel; False if there is none, or an unusual one."""
        channel = connection.channels.get(number)
        if channel is None or not hasattr(channel, "deliver") or channel.is_closing:
            return False
        try:
            found = _delivery(self._data, number, at, end)
        except _UNUSUAL:
            return False
        if found is None:
            return False
        after, frames, said, properties, body = found
        self._at = after
        connection.bytes_recv += frames
        channel.deliver(said, properties, body)
        return True


def _read(transport: Any) -> bytes:
    with transport.having_timeout(0):
        came: bytes = transport._quick_recv(_CHUNK)  # noqa: SLF001 - pinned by a test
    if not came:
        msg = "Server unexpectedly closed connection"
        raise OSError(msg)
    return came


def _has_decrypted(sock: Any) -> bool:
    """True if TLS has decrypted more than was asked for: that makes no descriptor readable."""
    pending = getattr(sock, "pending", None)
    return pending is not None and pending() > 0


#: Consumer, tag, whether it came before, exchange, routing key.
_Said = tuple[str, int, bool, str, str]


def _delivery(
    data: bytes, number: int, begin: int, end: int
) -> tuple[int, int, _Said, dict[str, Any], Any] | None:
    """The delivery whose method's payload is from *begin* to *end*.

    It is where the next frame begins, how many frames it was, what is said of it, its properties
    and its body; None if it is not there as a whole. Raises one of _UNUSUAL.
    """
    header = _frame_at(data, end + 1)
    if header is None or header[:2] != (_HEADER, number):
        return None
    _, _, first, last = header
    (length,) = _BODY_SIZE.unpack_from(data, first + 4)
    body: Any = ""  # py-amqp's own for a body of no bytes
    after, frames = last + 1, 2
    if length:
        whole = _frame_at(data, after)
        if whole is None or whole[:2] != (_BODY, number) or whole[3] - whole[2] != length:
            return None
        body, after, frames = data[whole[2] : whole[3]], whole[3] + 1, 3
    said = _said(data, begin + len(_DELIVER), end)
    return after, frames, said, _properties(data, first + _BEFORE_FLAGS, last), body


def _frame_at(data: bytes, at: int) -> tuple[int, int, int, int] | None:
    """Type and channel of the frame at *at*, and where its payload begins and ends.

    None if it is not there as a whole. Raises UnexpectedFrame if its end is not marked.
    """
    if at + _AROUND > len(data):
        return None
    kind, number, size = _HEAD.unpack_from(data, at)
    begin = at + _BEFORE
    end = begin + size
    if end >= len(data):
        return None
    if data[end] != _END:
        msg = f"Received frame_end {data[end]:#04x} while expecting 0xce"
        raise UnexpectedFrame(msg)
    return kind, number, begin, end


def _said(data: bytes, at: int, end: int) -> _Said:
    middle = at + 1 + data[at]
    consumer = _text(data[at + 1 : middle])
    (tag,) = _BODY_SIZE.unpack_from(data, middle)
    came_before = bool(data[middle + 8] & 1)
    at = middle + 9
    middle = at + 1 + data[at]
    exchange = _text(data[at + 1 : middle])
    last = middle + 1 + data[middle]
    _check(last, end)
    return consumer, tag, came_before, exchange, _text(data[middle + 1 : last])


@lru_cache(maxsize=256)
def _text(raw: bytes) -> str:
    """The text in *raw*, which is the same in many messages."""
    return raw.decode()


@lru_cache(maxsize=256)
def _present(flags: int) -> tuple[tuple[str, Any], ...]:
    """The properties that *flags* say are there."""
    if flags & 3:
        msg = "more flags follow"
        raise ValueError(msg)
    return tuple(one for place, one in enumerate(_PROPERTIES) if flags & (0x8000 >> place))


def _properties(data: bytes, at: int, end: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    (flags,) = _FLAGS.unpack_from(data, at)
    at += 2
    for name, kind in _present(flags):
        if kind == "s":
            after = at + 1 + data[at]
            found[name] = data[at + 1 : after].decode()
            at = after
        elif kind == 1:
            found[name] = data[at]
            at += 1
        elif kind == "F":
            after = at + 4 + _LONG.unpack_from(data, at)[0]
            _check_room(after, end)
            found[name] = _table(data, at + 4, after)
            at = after
        else:
            (found[name],) = _BODY_SIZE.unpack_from(data, at)
            at += 8
    _check(at, end)
    return found


def _table(data: bytes, at: int, end: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    long = _LONG.unpack_from
    while at < end:
        after = at + 1 + data[at]
        name = data[at + 1 : after].decode()
        kind = data[after]
        if kind == _TEXT:  # here, not in `_value`: most are texts, or nothing
            at = after + 5 + long(data, after + 1)[0]
            found[name] = data[after + 5 : at].decode()
        elif kind == _NOTHING:
            found[name], at = None, after + 1
        else:
            found[name], at = _value(data, after, end)
    _check(at, end)
    return found


def _value(data: bytes, at: int, end: int) -> tuple[Any, int]:
    """The value whose type stands at *at*, and where the next one begins."""
    kind = data[at]
    at += 1
    if kind == _NOTHING:
        return None, at
    if kind == _BIT:
        return bool(data[at]), at + 1
    if (number := _NUMBERS.get(kind)) is not None:
        return number.unpack_from(data, at)[0], at + number.size
    after = at + 4 + _LONG.unpack_from(data, at)[0]
    _check_room(after, end)
    if kind == _TEXT:
        return data[at + 4 : after].decode(), after
    if kind == _TABLE:
        return _table(data, at + 4, after), after
    if kind == _ARRAY:
        return _array(data, at + 4, after), after
    msg = f"a value of type {kind}"
    raise ValueError(msg)


def _array(data: bytes, at: int, end: int) -> list[Any]:
    found = []
    while at < end:
        value, at = _value(data, at, end)
        found.append(value)
    _check(at, end)
    return found


def _check(at: int, end: int) -> None:
    if at != end:
        msg = "its parts are longer or shorter than it says"
        raise ValueError(msg)


def _check_room(after: int, end: int) -> None:
    if after > end:
        msg = "a part is longer than the whole"
        raise ValueError(msg)
