"""Payloads ↔ protobuf's Any, for the types of events, commands and states. Pure.

A payload whose type protobuf knows here travels as that message; any other as a JsonMessage. What
nobody here knows is kept as it came.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import Any, Final

from google.protobuf import any_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.message import DecodeError as ProtobufDecodeError
from google.protobuf.message import Message

from angzarr.errors import DecodeError, UnserializableEvent
from angzarr.wire.worker_pb2 import JsonMessage

#: Under this key stands the value of a payload that nobody here can read.
_OPAQUE: Final = "$bytes"
_TYPE_URL: Final = "type.googleapis.com/"
#: The name of a type as it ends the address of one.
_URL_END: Final = re.compile("[^/]+")


def pack(type_name: str, data: Any) -> any_pb2.Any:
    """Return the payload *data* of a type as an Any; raises UnserializableEvent."""
    packed = any_pb2.Any()
    try:
        if (kept := _kept(type_name, data)) is not None:
            return any_pb2.Any(type_url=_TYPE_URL + type_name, value=kept)
        packed.Pack(_message(type_name, data), deterministic=True)
    except (json_format.ParseError, TypeError, ValueError, AttributeError, RecursionError) as error:
        msg = f"a {type_name} cannot be written as protobuf: {type(error).__name__}"
        raise UnserializableEvent(msg) from error
    return packed


def unpack(packed: any_pb2.Any) -> tuple[str, Any]:
    """Return the type and the JSON data of a payload; raises DecodeError if it is malformed."""
    name = packed.type_url.rpartition("/")[2]
    if not name:
        msg = "a payload has no type"
        raise DecodeError(msg)
    kind = _known(name)
    if kind is None:
        return name, {_OPAQUE: base64.b64encode(packed.value).decode()}
    try:
        message = kind.FromString(packed.value)
        if isinstance(message, JsonMessage):
            return message.type, json.loads(message.data or "null", parse_constant=_no_constant)
        return name, json_format.MessageToDict(message, preserving_proto_field_name=True)
    except (ProtobufDecodeError, json_format.Error, ValueError, TypeError, RecursionError) as error:
        msg = f"a payload cannot be read as {name}: {type(error).__name__}"
        raise DecodeError(msg) from error


def _message(type_name: str, data: Any) -> Message:
    kind = _known(type_name)
    if kind is None:
        return JsonMessage(type=type_name, data=json.dumps(data, allow_nan=False))
    return json_format.ParseDict(data, kind())


def _known(type_name: str) -> type[Message] | None:
    try:
        found = descriptor_pool.Default().FindMessageTypeByName(type_name)
    except KeyError:
        return None
    return message_factory.GetMessageClass(found)


def _no_constant(name: str) -> Any:
    """Refuse what Python takes for JSON and nobody else does: NaN and the infinities."""
    msg = f"{name} is not JSON"
    raise ValueError(msg)


def _kept(type_name: str, data: Any) -> bytes | None:
    """Return the bytes of a payload that was kept as it came; None for any other."""
    if not isinstance(data, dict) or data.keys() != {_OPAQUE} or not _URL_END.fullmatch(type_name):
        return None
    try:
        value = base64.b64decode(data[_OPAQUE], validate=True)
    except (binascii.Error, ValueError, TypeError):
        return None
    return value if base64.b64encode(value).decode() == data[_OPAQUE] else None
