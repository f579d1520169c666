"""Codec: DeadLetter ↔ bytes, binary or JSON, told apart by content type.

Reading is safe on hostile bytes and raises nothing but DecodeError. Writing never fails.

Letters as lines of JSON, as they are exported: read one and it is the letter that was written.

A letter stands there in its canonical JSON; what cannot be read, or has no JSON, as base64.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError as ProtobufDecodeError

from angzarr.dead_letters.bounds import LETTER, check_letter_json, check_letter_wire, check_line
from angzarr.dead_letters.foreign import LATER_TYPE_NAME, TYPE_NAME, adopt_later_generation
from angzarr.dead_letters.json_form import read_json, write_json
from angzarr.dead_letters.letter import DeadLetter
from angzarr.dead_letters.queue import Outgoing, RawLetter, Receipt
from angzarr.dead_letters.record import (
    RECORD_CONTENT_TYPE,
    ForeignRecord,
    bounded,
    from_text,
    to_text,
    unwrapped,
    wrapped,
)
from angzarr.dead_letters.wire_form import from_wire, to_wire
from angzarr.errors import DecodeError, text_of
from angzarr.runtime.failures import is_machine_fault
from angzarr.runtime.json_bounds import Bounds
from angzarr.wire.dead_letter_pb2 import AngzarrDeadLetter

PROTOBUF_CONTENT_TYPE: Final = f'application/x-protobuf; messageType="{TYPE_NAME}"'
JSON_CONTENT_TYPE: Final = "application/json"
#: More than any backend carries; a larger letter is refused unread.
MAX_LETTER_BYTES: Final = 32 * 1024 * 1024

_BINARY_TYPES: Final = frozenset(
    {"application/x-protobuf", "application/protobuf", "application/vnd.google.protobuf"}
)


class Form(StrEnum):
    """How a letter is written."""

    JSON = "json"
    BINARY = "binary"


class Encoded(NamedTuple):
    """A letter as it travels."""

    body: bytes
    content_type: str


def encode(letter: Outgoing, form: Form = Form.JSON) -> Encoded:
    """Write *letter*, in *form* unless a letter of others would lose something by it.

    Stack and messages longer than their maximum are cut. Raw bytes stay as they are, in a document
    of their own where a record carried them.
    """
    if isinstance(letter, RawLetter) and letter.record is not None:
        body = wrapped(letter.raw, letter.content_type, letter.record)
        return Encoded(body, RECORD_CONTENT_TYPE)
    if isinstance(letter, RawLetter):
        return Encoded(letter.raw, letter.content_type)
    if form is Form.JSON and letter.canonical:  # it would come to the same
        return Encoded(letter.canonical, JSON_CONTENT_TYPE)
    only_json = letter.envelope.startswith(b"{")
    if (form is Form.JSON or only_json) and (text := write_json(letter)) is not None:
        return Encoded(text, JSON_CONTENT_TYPE)
    return Encoded(to_wire(letter).SerializeToString(deterministic=True), PROTOBUF_CONTENT_TYPE)


def decode(raw: bytes, content_type: str = "", bounds: Bounds = LETTER) -> DeadLetter:
    """Read a letter; raises DecodeError, with one sentence that says why, and nothing else.

    One that holds more than *bounds* is not parsed. Without a content type JSON is known by its
    brace, which begins no protobuf message.
    """
    if len(raw) > MAX_LETTER_BYTES:
        msg = f"the letter has {len(raw)} bytes, more than the {MAX_LETTER_BYTES} that are read"
        raise DecodeError(msg)
    form, later = _form_of(raw, content_type)
    try:
        read = _read_json if form is Form.JSON else _read_binary
        return read(raw, bounds, later=later)
    except DecodeError:
        raise
    except ProtobufDecodeError as error:
        msg = "the letter is not a protobuf AngzarrDeadLetter"
        raise DecodeError(msg) from error
    except Exception as error:
        # Hostile input reaches every corner of the parsers: RecursionError, OverflowError, ...
        msg = f"the letter cannot be read: its content is malformed ({type(error).__name__})"
        raise DecodeError(msg) from error


def read_receipt(
    domain: str,
    raw: bytes,
    content_type: str,
    handle: object,
    record: Callable[[], ForeignRecord | None] = lambda: None,
    *,
    bounds: Bounds = LETTER,
) -> Receipt:
    """The receipt of what a backend delivered, readable within *bounds* or not.

    *record* says what carried it; it is asked where the bytes are no letter. What was wrapped with
    its own record comes out as it was.
    """
    letter, problem, kept, again = None, "", None, False
    try:
        if content_type == RECORD_CONTENT_TYPE:
            raw, content_type, kept = unwrapped(raw)
        letter = decode(raw, content_type, bounds)
    except (DecodeError, MemoryError) as error:
        problem, again = text_of(error), is_machine_fault(error)
    if letter is None and kept is None and (found := record()) is not None:
        kept = bounded(found)
    return Receipt(
        domain=domain,
        letter=letter,
        raw=raw,
        content_type=content_type,
        problem=problem,
        to_read_again=again,
        record=kept if letter is None else None,
        handle=handle,
    )


def raw_letter(domain: str, raw: bytes, content_type: str) -> RawLetter:
    """Bytes that are no letter as `encode` was given them; raises DecodeError."""
    if content_type != RECORD_CONTENT_TYPE:
        return RawLetter(domain=domain, raw=raw, content_type=content_type)
    inner, kind, record = unwrapped(raw)
    return RawLetter(domain=domain, raw=inner, content_type=kind, record=record)


def partition_key(letter: Outgoing) -> str:
    """The key that keeps letters of one aggregate in order: its root, else the correlation id."""
    event = None if isinstance(letter, RawLetter) else letter.event
    return (event.root or event.correlation_id or "") if event else ""


def correlation_id(letter: Outgoing) -> str:
    """The correlation id of the event in *letter*, if there is one."""
    event = None if isinstance(letter, RawLetter) else letter.event
    return (event.correlation_id or "") if event else ""


def _read_json(raw: bytes, bounds: Bounds, *, later: bool) -> DeadLetter:
    check_letter_json(raw, bounds)
    return read_json(raw, bounds, later=later)


def _read_binary(raw: bytes, bounds: Bounds, *, later: bool) -> DeadLetter:
    check_letter_wire(raw, AngzarrDeadLetter.DESCRIPTOR, bounds)
    wire = AngzarrDeadLetter.FromString(raw)
    if later:
        adopt_later_generation(wire)
    return from_wire(wire, bounds)


def _form_of(raw: bytes, content_type: str) -> tuple[Form, bool]:
    """The form and whether the content type names the later generation."""
    if content_type == JSON_CONTENT_TYPE:
        return Form.JSON, False
    media, *parameters = (part.strip() for part in content_type.split(";"))
    named = dict(p.partition("=")[::2] for p in parameters).get("messageType", "").strip("\"'")
    if named not in ("", TYPE_NAME, LATER_TYPE_NAME):
        msg = f"the content type names {named[:100]!r}, not a dead letter"
        raise DecodeError(msg)
    later = named == LATER_TYPE_NAME
    if not media:
        return (Form.JSON if raw.startswith(b"{") else Form.BINARY), later
    if media.lower() in _BINARY_TYPES:
        return Form.BINARY, later
    if media.lower() == JSON_CONTENT_TYPE:
        return Form.JSON, later
    msg = f"the content type {media[:100]!r} is neither protobuf nor JSON"
    raise DecodeError(msg)


#: The longest line in bytes: the largest letter as base64, and what is said of it.
MAX_LINE: Final = MAX_LETTER_BYTES * 4 // 3 + 2 * 1024 * 1024
#: How each line that was written here begins.
BEGINNING: Final = b'{"domain": '


def to_line(receipt: Receipt) -> bytes:
    """*receipt* as one line, with its end; never longer than MAX_LINE."""
    encoded = encode(receipt.letter) if receipt.letter else None
    if encoded is None or len(encoded.body) > MAX_LETTER_BYTES:
        encoded = Encoded(receipt.raw, receipt.content_type)
    elif encoded.content_type == JSON_CONTENT_TYPE:
        head = _head(receipt.domain, encoded.content_type)
        body = encoded.body.replace(b"\n", b" ").replace(b"\r", b" ")  # white space there
        return head.removesuffix(b"}") + b', "letter": ' + body + b"}\n"
    more = {"problem": receipt.problem} if receipt.problem else {}
    if receipt.record is not None:
        more["record"] = to_text(receipt.record)
    raw = base64.b64encode(encoded.body).decode()
    return _head(receipt.domain, encoded.content_type, raw=raw, **more) + b"\n"


def from_line(line: bytes, bounds: Bounds = LETTER) -> Receipt:
    """The receipt in *line*; raises DecodeError, with one sentence that says why."""
    held = _object(line, bounds)
    domain, content_type = _text(held, "domain"), _text(held, "content_type")
    if isinstance(held.get("letter"), dict):
        body = json.dumps(held["letter"], ensure_ascii=False).encode("utf-8", "surrogatepass")
        receipt = read_receipt(domain, body, content_type, None, bounds=bounds)
        if receipt.letter is None:
            raise DecodeError(receipt.problem)
        return receipt
    try:
        raw = base64.b64decode(_text(held, "raw"), validate=True)
    except (binascii.Error, ValueError) as error:
        msg = "its raw is not base64"
        raise DecodeError(msg) from error
    record = from_text(_text(held, "record")) if "record" in held else None
    return read_receipt(domain, raw, content_type, None, lambda: record, bounds=bounds)


def _head(domain: str, content_type: str, **more: str) -> bytes:
    return json.dumps({"domain": domain, "content_type": content_type, **more}).encode()


def _object(line: bytes, bounds: Bounds) -> dict[str, Any]:
    check_line(line, bounds)
    try:
        held = json.loads(line)
    except (ValueError, RecursionError) as error:
        msg = "it is not JSON"
        raise DecodeError(msg) from error
    if not isinstance(held, dict) or not ("letter" in held or "raw" in held):
        msg = (
            'it is not a letter: use an object with "domain", "content_type" and "letter" or "raw"'
        )
        raise DecodeError(msg)
    return held


def _text(held: dict[str, Any], key: str) -> str:
    value = held.get(key)
    if not isinstance(value, str):
        msg = f"its {key} is not a string"
        raise DecodeError(msg)
    return value
