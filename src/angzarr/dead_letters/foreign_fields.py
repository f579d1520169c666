"""Foreign fields: what a letter of others holds that this release does not know. Pure.

It is kept, and travels on. A task that took the letter by a route would not be given it.
"""

from __future__ import annotations

import json
from typing import Any

from google.protobuf.message import Message as Wire
from google.protobuf.unknown_fields import UnknownFieldSet

from angzarr.wire.dead_letter_pb2 import AngzarrDeadLetter

_ANY = "google.protobuf.Any"


def unknown_field(envelope: bytes) -> str:
    """Return the name, or the number, of a field that is not known; empty where all are.

    What an Any holds is its task's business. Raises what the parsers raise.
    """
    if envelope.startswith(b"{"):
        return _in_json(json.loads(envelope), AngzarrDeadLetter.DESCRIPTOR)
    return _in_wire(AngzarrDeadLetter.FromString(envelope))


def _in_wire(message: Wire) -> str:
    unknown = UnknownFieldSet(message)
    if len(unknown):
        return f"{message.DESCRIPTOR.name}.{unknown[0].field_number}"
    for field, value in message.ListFields():
        if not field.message_type or field.message_type.full_name == _ANY:
            continue
        if field.message_type.GetOptions().map_entry:
            continue
        for one in value if field.is_repeated else (value,):
            if found := _in_wire(one):
                return found
    return ""


def _in_json(value: dict[str, Any], kind: Any) -> str:
    known = {name: field for field in kind.fields for name in (field.json_name, field.name)}
    for name, inner in value.items():
        if (field := known.get(name)) is None:
            return f"{kind.name}.{name}"
        nested = field.message_type
        if not nested or nested.full_name == _ANY or nested.GetOptions().map_entry:
            continue
        for one in inner if isinstance(inner, list) else (inner,):
            if isinstance(one, dict) and (found := _in_json(one, nested)):
                return found
    return ""
