"""Codec: from a handler's declared type to its event type, and from a typed event to JSON and back.

A handler may declare a pydantic model, a dataclass, a TypedDict, a protobuf message or a plain
``dict`` (spec D1). Adapters are built once a type; decoding is strict only where the model is.

The message that Celery would send for an event, written without a broker (protocol 2).
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from google.protobuf import json_format
from google.protobuf.message import Message as ProtobufMessage
from pydantic import BaseModel, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python
from pydantic_core import to_json as to_json_text

from angzarr.errors import ConfigurationError, DecodeError, UnserializableEvent
from angzarr.events.event import Event, Message
from angzarr.events.headers import QUEUE, to_headers

_FIELD = re.compile(r"Failed to parse (\w+) field")


class Typed(NamedTuple):
    """An event by the name of its type and its JSON data, where there is no class for it."""

    type: str
    data: Any


def event_type_of(subject: object) -> str:
    """Return the event type of a type, of an event object, or of a name given as text.

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
    """Return *event* as a JSON value; raises UnserializableEvent naming what cannot be written."""
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
    """Return the function that turns a JSON value into *declared*'s type or raises DecodeError.

    A declaration by name only (a string) or without annotation takes the JSON value as it is.
    """
    if declared is None or declared is Any or isinstance(declared, str):
        return _as_it_is
    if isinstance(declared, type) and issubclass(declared, ProtobufMessage):
        return _protobuf_decoder(declared)
    return _pydantic_decoder(declared)


@cache
def adapter_for(declared: Any) -> TypeAdapter[Any]:
    """Return the pydantic adapter of *declared*, built once; ConfigurationError if it has none."""
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


#: What a Celery publisher writes behind the arguments.
_EMBED: Final = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
#: Celery's own bound for its texts of the arguments.
_LONGEST_REPR: Final = 1024


def celery_message(
    task: str,
    task_id: str,
    event: Event,
    queue: str,
    *,
    origin: str,
    headers: Mapping[str, Any] | None = None,
) -> Message:
    """Return the message that gives *event* to *task* by way of *queue* (decisions 14).

    *origin* says who wrote it; *headers* are sent besides those of the event.
    """
    return Message(
        body=json.dumps([[event.data], {}, _EMBED]).encode(),
        content_type="application/json",
        content_encoding="utf-8",
        headers={
            **_celery_headers(task, task_id, [event.data], origin),
            **to_headers(event),
            **(headers or {}),
            QUEUE: queue,
        },
        queue=queue,
        exchange="",
        routing_key=queue,
        properties={"correlation_id": task_id, "reply_to": ""},
    )


def _celery_headers(task: str, task_id: str, args: list[Any], origin: str) -> dict[str, Any]:
    return {
        "lang": "py",
        "task": task,
        "id": task_id,
        "shadow": None,
        "eta": None,
        "expires": None,
        "group": None,
        "group_index": None,
        "retries": 0,
        "timelimit": [None, None],
        "root_id": task_id,
        "parent_id": None,
        "argsrepr": repr(args)[:_LONGEST_REPR],
        "kwargsrepr": "{}",
        "origin": origin,
        "ignore_result": False,
        "replaced_task_nesting": 0,
        "stamped_headers": None,
        "stamps": {},
    }
