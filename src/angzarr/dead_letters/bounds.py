"""Bounds of what a letter parses to, read from its bytes before it is parsed. Pure.

Two bytes of protobuf are a page of an event book, three of JSON a list: a letter below the limit
of bytes could take a hundred times as much once it is read. What is more is kept as raw bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from angzarr.errors import DecodeError
from angzarr.runtime.json_bounds import Bounds, TooMuch, check_json, is_small

#: Values, keys, fields and messages of one letter; and again, of the JSON texts inside it. No
#: setting lowers them: workers write letters of as many.
LETTER: Final = Bounds(nodes=200_000, depth=200)
#: The most that a setting can say. What the ledger holds was read within what it said then.
WIDEST: Final = Bounds(nodes=5_000_000, depth=500)
#: Of a body that is written as JSON. A larger one is written as bytes, or nobody could read it:
#: an event's data may stand there twice, and headers and properties beside it.
BODY: Final = Bounds(nodes=LETTER.nodes // 3, depth=LETTER.depth)

_SHORTEST_FIELD: Final = 2
_VARINT, _FIXED64, _BYTES, _BEGIN, _END, _FIXED32 = range(6)
_SIZES: Final = {_FIXED64: 8, _FIXED32: 4}
_MORE: Final = 0x80
_TAG: Final = 2**32 - 1


def check_letter_json(raw: bytes, bounds: Bounds = LETTER) -> None:
    """Raise DecodeError where the JSON *raw* would parse to more than a letter may hold."""
    if not is_small(raw, bounds):
        _count(raw, bounds, bounds)


def check_line(raw: bytes, bounds: Bounds = LETTER) -> None:
    """Raise DecodeError where *raw*, a letter in a JSON object of few other values, would do so."""
    _count(raw, Bounds(bounds.nodes + 100, bounds.depth + 1), bounds)


def check_texts(texts: Iterable[str], bounds: Bounds = LETTER) -> None:
    """Raise DecodeError where JSON *texts* inside a letter, together, would do so."""
    texts = list(texts)
    if is_small(",".join(texts), bounds):
        return
    left = bounds.nodes
    for text in texts:
        if text:
            left -= _count(text, Bounds(max(left, 0), bounds.depth), bounds)


def is_within(body: str | bytes) -> bool:
    """True if a letter can hold a *body*, or the data of its event, as JSON."""
    try:
        check_json(body, BODY)
    except TooMuch:
        return False
    return True


def check_letter_wire(raw: bytes, kind: Any, bounds: Bounds = LETTER) -> None:
    """Raise DecodeError where *raw*, a protobuf message of *kind*, holds more than a letter may.

    *kind* is its descriptor. What is malformed is counted as far as any parser reads it.
    """
    if len(raw) < bounds.nodes * _SHORTEST_FIELD:
        return
    fields = 0
    parts = [(0, len(raw), kind)]
    while parts:
        at, end, kind = parts.pop()
        while at < end:
            fields += 1
            if fields > bounds.nodes:
                raise _too_much("fields", bounds)
            tag, at = _varint(raw, at)
            size = _SIZES.get(tag & 7, 0)
            if tag & 7 == _VARINT:
                _, at = _varint(raw, at)
            elif tag & 7 == _BYTES:
                size, at = _varint(raw, at)
                field = kind.fields_by_number.get((tag & _TAG) >> 3)
                if field is not None and field.message_type:
                    parts.append((at, min(at + size, end), field.message_type))
            at += size


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    """The number at *at* and where it ends; where *raw* ends within it, that is the end."""
    value = shift = 0
    for place in range(at, min(at + 10, len(raw))):
        value |= (raw[place] & ~_MORE) << shift
        if not raw[place] & _MORE:
            return value, place + 1
        shift += 7
    return value, len(raw)


def _count(text: str | bytes, left: Bounds, bounds: Bounds) -> int:
    """The number of nodes in *text*; raises DecodeError for more than are *left* of *bounds*."""
    try:
        return check_json(text, left)
    except TooMuch as error:
        raise _too_much(error.what, bounds) from error


def _too_much(what: str, bounds: Bounds) -> DecodeError:
    deep = what == "levels"
    most, setting = (bounds.depth, "most_levels") if deep else (bounds.nodes, "most_values")
    return DecodeError(
        f"the letter holds more than the {most} {what} that are read: if yours may hold as many,"
        f" raise dlq.{setting}"
    )
