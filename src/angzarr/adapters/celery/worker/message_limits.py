"""Intake: what is looked at of each message before anything is made of it, whatever the broker.

Bytes bound nothing: three kilobytes can be gigabytes once unpacked and parsed, in the parent,
before anything is counted; each worker that took the message over would die of it.
"""

from __future__ import annotations

from typing import Any, Final

from angzarr.adapters.celery.envelope import Envelope
from angzarr.dead_letters.text import to_json_text
from angzarr.errors import DecodeError
from angzarr.events.received import CHECKED, DamagedEnvelope, check_received
from angzarr.runtime.json_bounds import Bounds, TooMuch, check_json

#: The attribute of a kombu message that says that it was looked at.
_SEEN: Final = "angzarr_seen"
_JSON: Final = "application/json"
#: What a body that is no JSON may be decoded by. kombu takes any of Python's codecs, and of these
#: some unpack (bz2, zip) and some take a time that grows with the square of a text (idna).
_TEXT_ENCODINGS: Final = frozenset({"", "utf-8", "utf8", "us-ascii", "ascii", "binary", "latin-1"})


def take_in(message: Any, bounds: Bounds) -> None:
    """Look at *message*, a kombu message, once; its properties have their types from then on.

    Raises DamagedEnvelope for what no broker says of a message, DecodeError for a body that would
    be more than *bounds* once it is parsed.
    """
    if getattr(message, _SEEN, False):
        return
    if getattr(message, CHECKED, False):  # all but its body, which was packed then
        _check_type_of_body(message)
    else:
        check_fields(message)
    _check_body(message, bounds)
    setattr(message, _SEEN, True)


def read_body(message: Any, bounds: Bounds) -> None:
    """Take *message* in and read its body, which it keeps; raises whatever is wrong with either."""
    take_in(message, bounds)
    if message.content_type == _JSON:
        message.decode()


def check_fields(message: Any) -> None:
    """Raise DamagedEnvelope unless all that is said of *message* has the type that it must have."""
    for name in ("properties", "delivery_info"):
        if not isinstance(getattr(message, name), dict):
            msg = f"its {name} are not a mapping: {getattr(message, name)!r:.100}"
            raise DamagedEnvelope(msg)
    _check_type_of_body(message)
    check_received(
        message.headers,
        message.properties,
        message.delivery_info,
        {"content type": message.content_type, "content encoding": message.content_encoding},
    )


def _check_type_of_body(message: Any) -> None:
    if message.body is None:  # as a body of no bytes is
        message.body = b""
    if not isinstance(message.body, bytes | bytearray | memoryview | str):
        msg = f"its body must be a string; got {type(message.body).__name__} {message.body!r:.100}"
        raise DamagedEnvelope(msg)


def as_a_whole(message: Any, envelope: Envelope) -> Envelope:
    """Return the *envelope* of a damaged message: all that came of it is its body."""
    key = envelope.delivery_info.get("routing_key")
    return envelope._replace(
        body=_all_of(message),
        content_type="application/octet-stream",
        content_encoding="binary",
        headers={},
        properties={},
        delivery_info={"routing_key": key} if isinstance(key, str) else {},
    )


def _all_of(message: Any) -> bytes:
    """Return all that came of *message*: its envelope where it has one."""
    came = message.delivery_info if isinstance(message.delivery_info, dict) else {}
    sqs = came.get("sqs_message")
    if isinstance(sqs, dict) and isinstance(sqs.get("Body"), str):
        return str(sqs["Body"]).encode("utf-8", "surrogatepass")
    envelope = getattr(message, "_raw", None)  # kombu's transports that have envelopes keep them
    if envelope is not None:
        return to_json_text(envelope).encode()
    body = message.body
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    text = body if isinstance(body, str) else to_json_text(body)
    return text.encode("utf-8", "surrogateescape")


def _check_body(message: Any, bounds: Bounds) -> None:
    body = message.body
    if not body:
        return
    if message.content_type != _JSON:
        encoding = (message.content_encoding or "").lower()
        if encoding not in _TEXT_ENCODINGS:
            msg = f"its content encoding {encoding!r:.50} is not one of text"
            raise DecodeError(msg)
        return
    try:
        check_json(body if isinstance(body, bytes | str) else bytes(body), bounds)
    except TooMuch as error:
        limit = bounds.nodes if error.what == "values" else bounds.depth
        msg = (
            f"its body has more than {limit} {error.what}: if yours may have as many, raise"
            f" {_SETTINGS.get(error.what, 'message')}"
        )
        raise DecodeError(msg) from error


_SETTINGS: Final = {"values": "message.most_values", "levels": "message.most_levels"}
