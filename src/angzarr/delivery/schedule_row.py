"""Rows of a schedule: a waiting message as text, without loss, and the name it waits by."""

from __future__ import annotations

import hashlib
from typing import Any, Final

from angzarr.dead_letters.text import exact_json_text, from_json_text
from angzarr.delivery.delivery import position_of
from angzarr.delivery.schedule import Row
from angzarr.errors import DecodeError, DeliveryError
from angzarr.events.headers import WAITED_FOR, event_id_of
from angzarr.events.message import Message
from angzarr.events.numbers import NoNumber, read_number
from angzarr.resilience.keys import key_part

_TEXT: Final = ("content_type", "content_encoding", "queue", "exchange", "routing_key")
#: Parts of an id are cut to this: it is a key in every store.
_PART: Final = 100


def row_of(message: Message) -> Row:
    """Return the row in which *message* waits; raises DeliveryError if it could not be read."""
    row = {
        "body": _body_text(message.body),
        **{name: getattr(message, name) for name in _TEXT},
        "headers": dict(message.headers),
        "priority": message.priority,
        "properties": dict(message.properties),
    }
    try:
        return Row(id_of(message), exact_json_text(row))
    except (ValueError, RecursionError) as error:
        msg = "its headers are nested too deeply to be kept"
        raise DeliveryError(msg) from error


def read(text: str) -> Message:
    """Return the message that `row_of` was given; raises DecodeError."""
    try:
        found = from_json_text(text)
        body = found["body"]
        return Message(
            body=body.encode() if isinstance(body, str) else bytes(memoryview(body)),
            headers=_object(found["headers"]),
            priority=_priority(found["priority"]),
            properties=_object(found["properties"]),
            **{name: str(found[name]) for name in _TEXT},
        )
    except (ValueError, TypeError, KeyError, RecursionError, ArithmeticError) as error:
        msg = f"a row of the schedule cannot be read: {error!r}"
        raise DecodeError(msg) from error


def id_of(message: Message) -> str:
    """Return the name that a put of the same copy always has, and no other message.

    Copies at one position of one event are one: only one of them would run (decisions 10). Bodies
    are told apart, so that a second body under one event id still meets its refusal; so are the
    times for which publishers sent one message twice.
    """
    position = position_of(message.headers)
    eta = message.headers.get(WAITED_FOR) or message.headers.get("eta")
    told_apart = (message.queue, str(eta), message.id)
    digest = hashlib.sha256("\0".join(told_apart).encode("utf-8", "surrogatepass"))
    digest.update(b"\0")
    digest.update(message.body)
    parts = (
        key_part(message.task, _PART),
        key_part(event_id_of(message.headers), _PART),
        str(position.replay),
        str(position.hop),
        digest.hexdigest()[:32],
    )
    return ":".join(parts)


def _body_text(body: bytes) -> str | bytes:
    """Return *body* as people can read it, where that restores it."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        return body


def _priority(value: object) -> int | None:
    number = read_number(value)
    if isinstance(number, NoNumber):
        if number is NoNumber.ABSENT:
            return None
        msg = f"its priority is {number.value}"
        raise ValueError(msg)
    return number


def _object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        msg = f"{type(value).__name__} is not an object"
        raise TypeError(msg)
    return value
