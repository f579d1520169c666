"""Letters as texts, since SQS and SNS carry nothing else, and back. Pure."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from angzarr.dead_letters.codec import JSON_CONTENT_TYPE, Form, encode
from angzarr.dead_letters.letter import DeadLetter
from angzarr.dead_letters.queue import Outgoing, RawLetter

#: The name of the message attribute that tells a letter's form.
CONTENT_TYPE: Final = "content_type"
#: The name of the one that says how bytes which are no letter became a text (MIME, RFC 2045).
TRANSFER_ENCODING: Final = "content_transfer_encoding"
#: What the latter says: base64, in whatever form the bytes are.
BASE64: Final = "base64"
#: Base64 of no bytes: an empty text is no message.
_EMPTY: Final = "="

#: Characters that SQS refuses: what XML 1.0 cannot hold.
_ILLEGAL: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Text(NamedTuple):
    """A letter as a text, with what its message says of it, which may be nothing."""

    text: str
    content_type: str = ""
    transfer_encoding: str = ""


def is_legal(text: str) -> bool:
    """Tell whether SQS takes *text* as a message or as an attribute's value."""
    return bool(text) and not _ILLEGAL.search(text)


def as_text(letter: Outgoing, form: Form) -> Text:
    """Return *letter* as a text: JSON, or base64 of the binary form.

    Binary, too, where the JSON has a character that SQS refuses. Bytes that are no letter stay as
    they are where that is a text which is read as these bytes, else they are base64 and said so.
    """
    if isinstance(letter, RawLetter):
        return _raw_as_text(*encode(letter))
    return _letter_as_text(letter, form)


def as_bytes(given: Text) -> bytes:
    """Return the bytes of a letter: base64 wherever the text is not JSON (wire facts)."""
    if given.transfer_encoding == BASE64:
        return _of_base64(given.text, strict=False)
    if given.content_type.startswith(JSON_CONTENT_TYPE) or given.text.startswith("{"):
        return _plain(given.text)
    return _of_base64(given.text, strict=True)


def told_by(attributes: Mapping[str, str], text: str) -> Text:
    """Return *text* with what the *attributes* of its message say."""
    return Text(text, attributes.get(CONTENT_TYPE, ""), attributes.get(TRANSFER_ENCODING, ""))


def _letter_as_text(letter: DeadLetter, form: Form) -> Text:
    body, content_type = encode(letter, form)
    if content_type == JSON_CONTENT_TYPE:
        text = body.decode()
        if text.isascii() or is_legal(text):  # JSON escapes what SQS refuses of ASCII
            return Text(text, content_type)
        body, content_type = encode(letter, Form.BINARY)
    return Text(base64.b64encode(body).decode(), content_type)


def _raw_as_text(raw: bytes, content_type: str) -> Text:
    try:
        plain = Text(raw.decode(), content_type)
    except UnicodeDecodeError:
        plain = Text("")
    # Without a content type somebody's JSON could be taken for a notification of SNS.
    if content_type and is_legal(plain.text) and as_bytes(plain) == raw:
        return plain
    return Text(base64.b64encode(raw).decode() or _EMPTY, content_type, BASE64)


def _of_base64(text: str, *, strict: bool) -> bytes:
    try:
        return base64.b64decode(text, validate=strict)
    except (binascii.Error, ValueError):
        return _plain(text)


def _plain(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")
