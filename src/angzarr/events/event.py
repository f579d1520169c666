"""Event: what happened, and to whom it belongs (spec D1). A value; it does no I/O.

A Message is a broker's message as received, complete enough to be published again. The codec leads
from a handler's declared type to its event type, and from a typed event to JSON and back. A handler
may declare a pydantic model, a dataclass, a TypedDict, a protobuf message or a plain ``dict``.
Adapters are built once a type; decoding is strict only where the model is.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import cache
from typing import Any, NamedTuple

from google.protobuf import json_format
from google.protobuf.message import Message as ProtobufMessage
from pydantic import BaseModel, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python
from pydantic_core import to_json as to_json_text

from angzarr.errors import ConfigurationError, DecodeError, InvalidDomainName, UnserializableEvent
from angzarr.runtime.fast_init import fast_init

#: Long enough for people, short enough for every backend: SQS allows 80 characters and
#: ``angzarr-dlq-`` takes 12 of them (spec L2).
MAX_DOMAIN_LENGTH = 64

_DOMAIN = re.compile(r"[a-z][a-z0-9.-]*\Z")
_TASK_IDS = uuid.UUID("6b1c7a52-6f0e-5f0b-9a55-0d0f3d0c5a11")


class Priority(StrEnum):
    """How long an event may wait; feeds the backoff policy (spec D3)."""

    REALTIME = "realtime"
    BACKGROUND = "background"
    DEFAULT = "default"


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event as a handler sees it; `data` is a JSON value."""

    id: str
    type: str
    data: Any
    domain: str | None = None
    root: str | None = None
    edition: str | None = None
    sequence: int | None = None
    correlation_id: str | None = None
    causation_id: str | None = None
    tenant_id: str | None = None
    priority: Priority = Priority.DEFAULT
    config_pins: Mapping[str, str] = field(default_factory=dict)
    occurred_at: datetime | None = None
    traceparent: str | None = None
    #: How many events and commands came before it in its chain.
    depth: int = 0


def check_domain(name: str) -> str:
    """*name* if every dead-letter backend can carry it, else raise."""
    if not isinstance(name, str) or not _DOMAIN.match(name) or len(name) > MAX_DOMAIN_LENGTH:
        msg = (
            f"domain {name!r} cannot be used: write it with a-z, 0-9, '.' and '-', starting with"
            f" a letter, at most {MAX_DOMAIN_LENGTH} characters"
        )
        raise InvalidDomainName(msg)
    return name


#: Made once: `json.dumps` would make one a call.
_CANONICAL = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str
)


def canonical_json(value: object) -> bytes:
    """Write *value* so that equal JSON values give equal bytes: sorted keys, no spaces, UTF-8."""
    return _CANONICAL.encode(value).encode("utf-8", "surrogatepass")


def digest(value: object) -> str:
    """The SHA-256 of *value*'s canonical JSON: the id of an event that has none (D1)."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def task_id_for(event_id: str, handler: str) -> str:
    """The task id of *event_id* for *handler*: the same pair gives the same id."""
    return str(uuid.uuid5(_TASK_IDS, f"{event_id}\x00{handler}"))


def compensation_id_for(event_id: str, handler: str, task: str) -> str:
    """The id of the event by which *task* undoes what *handler* did with *event_id*.

    The same three give the same id. *task* may undo two handlers of one event, and take the event
    itself besides: each of these has a claim of its own.
    """
    return str(uuid.uuid5(_TASK_IDS, f"{event_id}\x00{handler}\x00compensated by\x00{task}"))


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One broker message, raw. `queue` is where it was first sent, never a delay queue's name."""

    body: bytes
    content_type: str
    content_encoding: str
    headers: Mapping[str, Any]
    queue: str
    exchange: str = ""
    routing_key: str = ""
    priority: int | None = None
    properties: Mapping[str, Any] = field(default_factory=dict)

    @property
    def task(self) -> str:
        """The Celery task name, or an empty string for a foreign message."""
        return str(self.headers.get("task") or "")

    @property
    def id(self) -> str:
        """The Celery task id, or an empty string for a foreign message."""
        return str(self.headers.get("id") or "")


_FIELD = re.compile(r"Failed to parse (\w+) field")


class Typed(NamedTuple):
    """An event by the name of its type and its JSON data, where no class exists for it."""

    type: str
    data: Any


def event_type_of(subject: object) -> str:
    """The event type of a type, of an event object, or of a name given as text.

    A class may say it with ``__event_type__``; otherwise a protobuf message has its full name and
    any other class its own name, so that a class may move between modules.
    """
    if isinstance(subject, str):
        return subject
    if isinstance(subject, Typed):
        return subject.type
    taken = subject if isinstance(subject, type) else type(subject)
    if named := getattr(taken, "__event_type__", None):
        return str(named)
    if issubclass(taken, ProtobufMessage):
        return str(taken.DESCRIPTOR.full_name)
    if taken is dict:
        msg = "a plain dict has no event type of its own: name it, e.g. type='order.placed'"
        raise ConfigurationError(msg)
    return taken.__name__


def to_json(event: object) -> Any:
    """*event* as a JSON value; raises UnserializableEvent naming what cannot be written."""
    if isinstance(event, Typed):
        return event.data
    try:
        if isinstance(event, ProtobufMessage):
            return json_format.MessageToDict(event, preserving_proto_field_name=True)
        if dataclasses.is_dataclass(event) and not isinstance(event, type):
            return adapter_for(type(event)).dump_python(event, mode="json", warnings="error")
        return to_jsonable_python(event)
    except (PydanticSerializationError, ValueError, TypeError) as error:
        msg = (
            f"{event_type_of(event) if not isinstance(event, dict) else 'the event'} cannot be"
            f" written as JSON: {error}; give fields types that pydantic can write"
        )
        raise UnserializableEvent(msg) from error


def decoder_for(declared: object) -> Callable[[Any], Any]:
    """The function that turns a JSON value into *declared*'s type or raises DecodeError.

    A declaration by name only (a string) or without annotation takes the JSON value as it is.
    """
    if declared is None or declared is Any or isinstance(declared, str):
        return _as_it_is
    if isinstance(declared, type) and issubclass(declared, ProtobufMessage):
        return _protobuf_decoder(declared)
    return _pydantic_decoder(declared)


@cache
def adapter_for(declared: Any) -> TypeAdapter[Any]:
    """The pydantic adapter of *declared*, built once; ConfigurationError if it has none."""
    try:
        return TypeAdapter(declared)
    except PydanticUserError as error:
        what = getattr(declared, "__name__", declared)
        msg = f"{what} cannot be the type of an event: {error.message}"
        raise ConfigurationError(msg) from error


def _as_it_is(data: Any) -> Any:
    return data


def _protobuf_decoder(declared: type[ProtobufMessage]) -> Callable[[Any], Any]:
    name = declared.DESCRIPTOR.full_name
    has_own_form = name.startswith("google.protobuf.")  # a wrapper or a time is no JSON object

    def decode(data: Any) -> Any:
        if not isinstance(data, dict) and not has_own_form:
            raise _does_not_fit(name, "it is not a JSON object")
        try:
            return json_format.ParseDict(data, declared(), ignore_unknown_fields=True)
        except (json_format.ParseError, TypeError, AttributeError, ValueError) as error:
            raise _does_not_fit(name, _field_of(error)) from None

    return decode


def _pydantic_decoder(declared: Any) -> Callable[[Any], Any]:
    validator = adapter_for(declared).validator
    validate, validate_json = validator.validate_python, validator.validate_json
    is_model = isinstance(declared, type) and issubclass(declared, BaseModel)
    name = getattr(declared, "__name__", str(declared))

    def decode(data: Any) -> Any:
        if is_model and isinstance(data, declared):
            return data
        try:
            return validate(data)
        except ValidationError as error:
            try:  # a strict model takes a date's text only where it knows that it reads JSON
                return validate_json(to_json_text(data))
            except (ValidationError, PydanticSerializationError):
                raise _does_not_fit(name, _explain(error)) from None

    return decode


def _does_not_fit(name: str, why: str) -> DecodeError:
    return DecodeError(f"the event does not fit {name}: {why}")


def _field_of(error: Exception) -> str:
    """Name the field that protobuf refused; its own words repeat the value."""
    found = _FIELD.search(str(error))
    return f"{found[1]} cannot be read" if found else "it is not a JSON form of this message"


def _explain(error: ValidationError) -> str:
    """Say which fields are wrong without repeating their values, which may be secret."""
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    return "; ".join(
        f"{'.'.join(str(part) for part in problem['loc']) or 'the whole body'}: {problem['msg']}"
        for problem in problems[:10]
    )
