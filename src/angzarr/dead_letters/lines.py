"""Letters as lines of JSON, as they are exported: read one and it is the letter that was written.

A letter stands there in its canonical JSON; what cannot be read, or has no JSON, as base64.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, Final

from angzarr.dead_letters.bounds import LETTER, check_line
from angzarr.dead_letters.codec import (
    JSON_CONTENT_TYPE,
    MAX_LETTER_BYTES,
    Encoded,
    encode,
    read_receipt,
)
from angzarr.dead_letters.queue import Receipt
from angzarr.dead_letters.record import from_text, to_text
from angzarr.errors import DecodeError
from angzarr.runtime.json_bounds import Bounds

#: The longest line in bytes: the largest letter as base64, and what is said of it.
MAX_LINE: Final = MAX_LETTER_BYTES * 4 // 3 + 2 * 1024 * 1024
#: How each line that was written here begins.
BEGINNING: Final = b'{"domain": '


def to_line(receipt: Receipt) -> bytes:
    """Return *receipt* as one line, with its end; never longer than MAX_LINE."""
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
    """Return what *line* holds; raises DecodeError, with one sentence that says why."""
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
