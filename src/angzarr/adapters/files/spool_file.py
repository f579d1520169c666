"""A letter as a file: two lines of JSON, to be read with ``cat`` and ``jq``. No I/O here.

The first says the content type and the digest of the letter's bytes; the second is the letter, or
base64 of it where its form is binary. Of bytes that are no letter the first says the domain, too,
and the second is base64.

Names of a spool's files: a listing alone tells order, size and whose letter it is. Pure.

``<time>-<process>-<number>-<size>-<letter id>.letter``, the time in UTC, e.g.
``20261122T083256.123456Z-9f1c03aa-00000001-2113-2c26b46b….letter``.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final, NamedTuple

from angzarr.dead_letters.codec import (
    JSON_CONTENT_TYPE,
    MAX_LETTER_BYTES,
    decode,
    encode,
    raw_letter,
)
from angzarr.dead_letters.queue import Outgoing, RawLetter
from angzarr.dead_letters.spool_forwarder import Spooled
from angzarr.errors import DecodeError

#: More than any letter that may be read takes, base64 and all; what is larger is not ours.
MAX_FILE_BYTES = 2 * MAX_LETTER_BYTES


class Content(NamedTuple):
    """What a file holds; `domain` is that of bytes which are no letter, None where they are one."""

    body: bytes
    content_type: str
    domain: str | None


def write(letter: Outgoing) -> bytes | None:
    """What *letter*'s file holds, None if it is larger than any letter that is read."""
    body, content_type = encode(letter)
    if len(body) > MAX_LETTER_BYTES:
        return None
    content = Content(body, content_type, letter.domain if isinstance(letter, RawLetter) else None)
    head = {"content_type": content_type, "sha256": _digest(content)}
    if content.domain is not None:
        head["domain"] = content.domain
    shown = body if _is_shown(content) else b'"%b"' % base64.b64encode(body)
    return b"%b\n%b\n" % (json.dumps(head).encode(), shown)


def content(raw: bytes) -> Content:
    """What the file holds; raises DecodeError where that is not what was written."""
    head, _, rest = raw.partition(b"\n")
    said = _read_json(head)
    content_type = said.get("content_type") if isinstance(said, dict) else None
    if not isinstance(content_type, str):
        msg = "the file does not begin with the letter's content type"
        raise DecodeError(msg)
    domain = said.get("domain")
    found = Content(
        rest.removesuffix(b"\n"), content_type, domain if isinstance(domain, str) else None
    )
    if not _is_shown(found):
        found = found._replace(body=_read_base64(found.body))
    if _digest(found) != said.get("sha256"):
        msg = "the file does not hold what was written to it: it was cut or changed"
        raise DecodeError(msg)
    return found


def read(raw: bytes) -> Outgoing:
    """The letter, or the bytes that are none; raises DecodeError as `content` does."""
    body, content_type, domain = content(raw)
    if domain is None:
        return decode(body, content_type)
    return raw_letter(domain, body, content_type)


def _is_shown(found: Content) -> bool:
    """True if the second line is the letter itself."""
    return found.domain is None and found.content_type == JSON_CONTENT_TYPE


def _digest(found: Content) -> str:
    """The SHA-256 of a letter; of other bytes with all that is said of them."""
    told = "" if found.domain is None else f"{found.content_type}\0{found.domain}\0"
    return hashlib.sha256(told.encode("utf-8", "surrogatepass") + found.body).hexdigest()


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


_TIME: Final = "%Y%m%dT%H%M%S.%fZ"
_LETTER: Final = re.compile(
    r"(\d{8}T\d{6}\.\d{6}Z)-[0-9a-f]{8}-\d{8,}-(\d{1,15})-([0-9A-Za-z_.-]{1,100})\.letter", re.ASCII
)
_PLAIN_ID: Final = re.compile(r"[0-9A-Za-z_.-]{1,100}", re.ASCII)


def name_of(at: datetime, process: str, number: int, size: int, letter_id: str) -> str:
    """The name of a letter's file; an id that no name can hold is given as its hash."""
    plain = _PLAIN_ID.fullmatch(letter_id)
    shown = (
        letter_id
        if plain
        else hashlib.sha256(letter_id.encode("utf-8", "surrogatepass")).hexdigest()
    )
    return f"{at.strftime(_TIME)}-{process}-{number:08d}-{size}-{shown}.letter"


def letters_among(names: Iterable[str]) -> list[Spooled]:
    """The letters among *names* of files, oldest first."""
    found = (_letter(name) for name in sorted(names))
    return [one for one in found if one is not None]


def _letter(name: str) -> Spooled | None:
    if (found := _LETTER.fullmatch(name)) is None:
        return None
    try:
        at = datetime.fromisoformat(found[1])
    except ValueError:  # another program's file
        return None
    return Spooled(name, at, int(found[2]), found[3])
