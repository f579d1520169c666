"""Received: what brokers say of a message beside its body, each field of one type from here on.

A value of another type would fail somewhere later: amid settling, in a letter, in Celery. Here it
is known to be the sender's fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from itertools import chain
from typing import Any, Final, TypeGuard

from angzarr.events.headers import NoNumber, read_number
from angzarr.runtime.json_bounds import Bounds

#: The most that an envelope of JSON parses to; its body is one text in it.
ENVELOPE: Final = Bounds(nodes=20_000, depth=100)
#: Levels of headers, themselves among them: they are kept two levels down, in rows and letters.
HEADER_LEVELS: Final = ENVELOPE.depth - 2
#: AMQP's octet; other brokers have less.
MAX_PRIORITY: Final = 255
#: A transport's word, in the properties, for what it could not read; the body is the whole message.
UNREADABLE: Final = "angzarr_unreadable"
#: The attribute of a message that says that its transport has called `check_envelope`.
CHECKED: Final = "angzarr_checked"

#: Properties and facts of a delivery that are texts, where they are said at all.
_TEXTS: Final = frozenset(
    {"correlation_id", "reply_to", "message_id", "type", "user_id", "app_id", "cluster_id",
     "expiration"}
)  # fmt: skip
_PLACES: Final = frozenset({"exchange", "routing_key"})
_STR: Final = frozenset({str})
#: What decoders make of what holds others.
_CONTAINERS: Final = frozenset({dict, list, tuple})


class DamagedEnvelope(ValueError):
    """The envelope of a message is damaged; says how."""


def check_envelope(envelope: Mapping[str, Any]) -> None:
    """Do as `check_received` for the JSON that kombu puts a message into where a broker has texts.

    Its properties, and what they say of the delivery, are mappings.
    """
    body, properties = envelope.get("body"), envelope["properties"]
    if not isinstance(body, str | None):
        raise _wrong("body", body, "text")
    said = {name: envelope.get(name) for name in ("content-type", "content-encoding")}
    check_received(envelope.get("headers"), properties, properties["delivery_info"], said)


def check_received(
    headers: object,
    properties: MutableMapping[str, Any],
    delivery_info: MutableMapping[str, Any],
    content: Mapping[str, object],
) -> None:
    """Give *properties* and *delivery_info* the types that all others rely on.

    Raises DamagedEnvelope for one of another type. *content* is the content type and encoding by
    their names. Nulls are taken out; a priority is cut to what AMQP has.
    """
    if UNREADABLE in properties:
        msg = f"{properties[UNREADABLE]!s:.200}"
        raise DamagedEnvelope(msg)
    if headers is not None:
        if not _are_headers(headers):
            raise _wrong("headers", headers, "a mapping of names")
        _check_levels(headers)
    for name, value in content.items():
        if value is not None and not isinstance(value, str):
            raise _wrong(name, value, "text")
    _check_texts(properties, _TEXTS)
    _check_texts(delivery_info, _PLACES)
    _check_octet(properties, "priority")
    _check_octet(properties, "delivery_mode")
    if "redelivered" in delivery_info:
        delivery_info["redelivered"] = bool(delivery_info["redelivered"])


def _check_levels(headers: Mapping[str, Any]) -> None:
    """Raise DamagedEnvelope for headers that are too deep to be written: AMQP has no bound."""
    level, left = _nested(headers.values()), HEADER_LEVELS - 1
    while level:
        if not left:
            msg = f"its headers have more than {HEADER_LEVELS} levels"
            raise DamagedEnvelope(msg)
        left -= 1
        inner = (one.values() if type(one) is dict else one for one in level)
        level = _nested(chain.from_iterable(inner))


def _nested(values: Iterable[Any]) -> list[Any]:
    return [one for one in values if type(one) in _CONTAINERS]


def _check_texts(fields: MutableMapping[str, Any], names: frozenset[str]) -> None:
    for name in names.intersection(fields):
        value = fields[name]
        if type(value) is str:
            continue
        if value is None:
            del fields[name]
        elif not isinstance(value, str):  # py-amqp and botocore have texts of their own
            raise _wrong(name, value, "text")


def _check_octet(properties: MutableMapping[str, Any], name: str) -> None:
    value = properties.get(name)
    if type(value) is int and 0 <= value <= MAX_PRIORITY:
        return
    if value is None:
        properties.pop(name, None)
        return
    number = read_number(value, MAX_PRIORITY)
    if number is NoNumber.TOO_LARGE:
        number = MAX_PRIORITY
    elif type(value) is int:  # below zero: kombu takes it for none
        number = 0
    if isinstance(number, NoNumber):
        raise _wrong(name, value, "a number")
    properties[name] = number


def _are_headers(headers: object) -> TypeGuard[dict[str, Any]]:
    if not isinstance(headers, dict):
        return False
    return _STR.issuperset(map(type, headers)) or all(isinstance(name, str) for name in headers)


def _wrong(name: str, value: object, wanted: str) -> DamagedEnvelope:
    return DamagedEnvelope(f"its {name} is not {wanted} but {type(value).__name__} {value!r:.100}")
