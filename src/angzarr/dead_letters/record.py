"""ForeignRecord: what carried bytes that are no letter, so that nothing of it is lost. Pure.

A letter of ours says everything itself. What another system put into a dead-letter queue says the
rest in its key, its headers or attributes, its properties, and by its place.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from angzarr.dead_letters.letter import unreadable_letter_id
from angzarr.dead_letters.text import from_json_text, to_json_text, valid_text, valid_tree
from angzarr.errors import DecodeError
from angzarr.events.headers import BROKER_COUNTERS
from angzarr.runtime.json_bounds import Bounds, TooMuch, check_json

#: Bytes, with what carried them, where they travel from one dead-letter queue to another.
RECORD_CONTENT_TYPE: Final = "application/vnd.angzarr.record+json"
#: The longest that what carried a record may be, as JSON; values beyond are named, not kept.
MAX_RECORD: Final = 1024 * 1024
_BOUNDS: Final = Bounds(nodes=50_000, depth=100)
#: What kombu's and RabbitMQ's own redelivery change about one and the same message.
_VOLATILE: Final = frozenset({*BROKER_COUNTERS, "x-acquired-count", "redelivered"}) - {
    "x-death",
    "x-first-death-exchange",
    "x-first-death-queue",
    "x-first-death-reason",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignRecord:
    """The facts that a broker gave about one message besides its bytes.

    Values are what JSON holds, and bytes. `place` says where it lay: topic, partition, offset;
    queue, exchange, routing key; message id. Where `is_unique`, no two records share a place.
    """

    broker: str
    place: Mapping[str, Any] = field(default_factory=dict)
    is_unique: bool = False
    key: bytes | None = None
    #: Headers or attributes in their order; a name may stand twice.
    headers: Sequence[tuple[str, Any]] = ()
    properties: Mapping[str, Any] = field(default_factory=dict)

    def header(self, name: str) -> Any:
        """The first value of the header *name*; None where there is none."""
        return next((value for known, value in self.headers if known == name), None)

    def identity(self) -> str:
        """The text that tells this record from others of the same bytes, in any copy of it."""
        if self.is_unique:
            return _canonical([self.broker, self.place])
        headers = [[name, value] for name, value in self.headers if name not in _VOLATILE]
        return _canonical([self.broker, self.place, self.key, headers, self.properties])

    def as_json(self) -> dict[str, Any]:
        """The record as a JSON value; bytes are texts where they are UTF-8, else ``$bytes``."""
        return {
            "broker": self.broker,
            "place": _shown(self.place),
            "key": _shown(self.key),
            "headers": [[name, _shown(value)] for name, value in self.headers],
            "properties": _shown(self.properties),
        }


class Wrapped(NamedTuple):
    """Bytes that are no letter, with what carried them."""

    raw: bytes
    content_type: str
    record: ForeignRecord


def record_id(domain: str, raw: bytes, record: ForeignRecord | None) -> str:
    """The id of bytes that are no letter; their place makes them another."""
    if record is None:
        return unreadable_letter_id(domain, raw)
    return unreadable_letter_id(f"{domain}\x00{record.identity()}", raw)


def to_text(record: ForeignRecord) -> str:
    """*record* as one JSON text, from which `from_text` makes an equal one."""
    told = {
        "broker": record.broker,
        "place": dict(record.place),
        "is_unique": record.is_unique,
        "key": record.key,
        "headers": [[name, value] for name, value in record.headers],
        "properties": dict(record.properties),
    }
    return json.dumps(json.loads(to_json_text(told)))


def from_text(text: str) -> ForeignRecord:
    """Read what `to_text` wrote; raises DecodeError on anything else."""
    try:
        check_json(text, _BOUNDS)
        told = from_json_text(text)
        return ForeignRecord(
            broker=_a(str, told["broker"]),
            place=_named(told["place"]),
            is_unique=_a(bool, told["is_unique"]),
            key=None if told["key"] is None else _a(bytes, told["key"]),
            headers=tuple((_a(str, name), value) for name, value in _a(list, told["headers"])),
            properties=_named(told["properties"]),
        )
    except (ValueError, TypeError, KeyError, RecursionError, ArithmeticError) as error:
        msg = "what carried the record cannot be read"
        raise DecodeError(msg) from error


def bounded(record: ForeignRecord) -> ForeignRecord:
    """*record* as it can be carried everywhere: as JSON keeps it, and not too large.

    The largest values go first, and are named with their size.
    """
    text = _text_within(record)
    if text is None:
        sizes = sorted(((len(to_json_text(value)), at) for at, (_, value) in
                        enumerate(record.headers)), reverse=True)  # fmt: skip
        headers = list(record.headers)
        for size, at in sizes:
            headers[at] = (headers[at][0], f"<{size} characters, which were not kept>")
            smaller = _with_headers(record, headers)
            if (text := _text_within(smaller)) is not None:
                break
    if text is None:
        place = {str(name)[:500]: str(value)[:500] for name, value in [*record.place.items()][:20]}
        return ForeignRecord(broker=record.broker, place=place, is_unique=record.is_unique)
    return from_text(text)


def without_fields(record: ForeignRecord) -> ForeignRecord:
    """The rest of *record* where its fields can be kept nowhere; never raises.

    A digest keeps it apart from others of the same bytes, and the same in any copy.
    """
    digest = hashlib.sha256(repr(record).encode("utf-8", "backslashreplace")).hexdigest()
    return ForeignRecord(broker=valid_text(record.broker)[:100], place={"digest": digest})


def wrapped(raw: bytes, content_type: str, record: ForeignRecord) -> bytes:
    """Bytes and what carried them as one JSON document, of `RECORD_CONTENT_TYPE`."""
    return json.dumps(
        {
            "content_type": valid_text(content_type),
            "record": to_text(record),
            "raw": base64.b64encode(raw).decode(),
        }
    ).encode()


def unwrapped(body: bytes) -> Wrapped:
    """Read what `wrapped` wrote; raises DecodeError on anything else."""
    try:
        check_json(body, Bounds(nodes=100, depth=4))
        told = json.loads(body.decode())
        content_type, text = _a(str, told["content_type"]), _a(str, told["record"])
        raw = base64.b64decode(_a(str, told["raw"]), validate=True)
    except (TooMuch, ValueError, TypeError, KeyError, RecursionError, binascii.Error) as error:
        msg = "what a record is wrapped in cannot be read"
        raise DecodeError(msg) from error
    return Wrapped(raw, content_type, from_text(text))


def _with_headers(record: ForeignRecord, headers: Sequence[tuple[str, Any]]) -> ForeignRecord:
    return ForeignRecord(
        broker=record.broker, place=record.place, is_unique=record.is_unique, key=record.key,
        headers=tuple(headers), properties=record.properties,
    )  # fmt: skip


def _text_within(record: ForeignRecord) -> str | None:
    text = to_text(record)
    if len(text) > MAX_RECORD:
        return None
    try:
        from_text(text)
    except DecodeError:
        return None
    return text


def _a(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        msg = f"no {kind.__name__}"
        raise TypeError(msg)
    return value


def _named(value: Any) -> dict[str, Any]:
    """*value*, a mapping by texts alone: readers of a record take its keys for names."""
    found: dict[str, Any] = _a(dict, value)
    for name in found:
        _a(str, name)
    return found


def _canonical(value: Any) -> str:
    return json.dumps(json.loads(to_json_text(value)), sort_keys=True)


def _shown(value: Any) -> Any:
    """*value* for people and programs: as JSON, bytes as text wherever that is the same."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, Mapping):
        return {str(name): _shown(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_shown(one) for one in value]
    return valid_tree(json.loads(to_json_text(value)))
