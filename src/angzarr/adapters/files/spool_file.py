"""A letter as a file: two lines of JSON, to be read with ``cat`` and ``jq``. No I/O here.

The first says the content type and the digest of the letter's bytes; the second is the letter, or
base64 of it where its form is binary.
"""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

from angzarr.dead_letters.codec import JSON_CONTENT_TYPE, MAX_LETTER_BYTES, decode, encode
from angzarr.dead_letters.letter import DeadLetter
from angzarr.errors import DecodeError

#: More than any letter that may be read takes, base64 and all; what is larger is not ours.
MAX_FILE_BYTES = 2 * MAX_LETTER_BYTES


def write(letter: DeadLetter) -> bytes | None:
    """Return what *letter*'s file holds, None if it is larger than any letter that is read."""
    body, content_type = encode(letter)
    if len(body) > MAX_LETTER_BYTES:
        return None
    head = {"content_type": content_type, "sha256": hashlib.sha256(body).hexdigest()}
    shown = body if content_type == JSON_CONTENT_TYPE else b'"%b"' % base64.b64encode(body)
    return b"%b\n%b\n" % (json.dumps(head).encode(), shown)


def read(raw: bytes) -> DeadLetter:
    """Return the letter; raises DecodeError where the file is not what was written."""
    head, _, rest = raw.partition(b"\n")
    said = _read_json(head)
    content_type = said.get("content_type") if isinstance(said, dict) else None
    if not isinstance(content_type, str):
        msg = "the file does not begin with the letter's content type"
        raise DecodeError(msg)
    shown = rest.removesuffix(b"\n")
    body = shown if content_type == JSON_CONTENT_TYPE else _read_base64(shown)
    if hashlib.sha256(body).hexdigest() != said.get("sha256"):
        msg = "the file does not hold what was written to it: it was cut or changed"
        raise DecodeError(msg)
    return decode(body, content_type)


def _read_json(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None


def _read_base64(raw: bytes) -> bytes:
    text = _read_json(raw)
    try:
        return base64.b64decode(text, validate=True)
    except (ValueError, TypeError):
        return b""
