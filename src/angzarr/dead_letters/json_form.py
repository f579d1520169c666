"""Letters in canonical proto3 JSON, those of others included.

JSON with fields or payload types that we do not know is kept whole in `DeadLetter.envelope` (its
brace tells it from protobuf) and written back as JSON.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any, Final

import orjson

# protobuf's C code imports descriptor_pb2 amid the first letter: by then in a thread of a worker's
# parent, or in each child anew.
from google.protobuf import descriptor_pb2 as _descriptor_pb2  # noqa: F401
from google.protobuf import json_format

from angzarr.dead_letters.foreign import adopt_later_generation_json, type_name
from angzarr.dead_letters.letter import DeadLetter, ForeignCover, cut_message
from angzarr.dead_letters.metadata import write_metadata
from angzarr.dead_letters.own_json import read_own, write_own
from angzarr.dead_letters.text import valid_mapping, valid_text, valid_tree
from angzarr.dead_letters.wire_form import (
    TASK_MESSAGE,
    from_wire,
    require_letter,
    task_message,
    to_wire,
    view,
)
from angzarr.errors import DecodeError
from angzarr.runtime.json_bounds import Bounds
from angzarr.wire.dead_letter_pb2 import AngzarrDeadLetter

#: What a letter says of itself anew each time it is written, in both spellings that JSON allows.
_RESTATED: Final = (
    "metadata",
    "rejectionReason", "rejection_reason",
    "sourceComponent", "source_component",
    "sourceComponentType", "source_component_type",
)  # fmt: skip
_BOOKS: Final = ("rejectedEvents", "rejected_events", "rejectedCommand", "rejected_command")
_PAYLOADS: Final = ("event", "command")
#: Which field json_format refused; the rest of its text may repeat the letter's content.
_REFUSED: Final = re.compile(r"Failed to parse ([A-Za-z_]{1,40}) field")


def write_json(letter: DeadLetter) -> bytes | None:
    """*letter* as JSON, or None where JSON would lose what its envelope holds."""
    if not letter.envelope:
        return _own_json(letter)
    if letter.envelope.startswith(b"{"):
        return _rewrite(letter)
    wire = to_wire(letter)
    try:
        text = json_format.MessageToJson(wire, indent=None, ensure_ascii=False)
        if json_format.Parse(text, AngzarrDeadLetter()) != wire:
            return None
    except (json_format.Error, TypeError, ValueError):
        return None
    return text.encode()


def read_json(raw: bytes, bounds: Bounds, *, later: bool) -> DeadLetter:
    """Read a letter; raises DecodeError and whatever hostile input makes the parser raise."""
    if not later and (letter := read_own(raw, bounds)) is not None:
        return letter
    try:
        # Not as bytes: in UTF-16 what was counted would not be what is parsed.
        data = json.loads(raw.decode("utf-8", "surrogatepass").removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        msg = "the letter is not JSON"
        raise DecodeError(msg) from error
    if not isinstance(data, dict):
        msg = "the letter is JSON but no object"
        raise DecodeError(msg)
    if later:
        adopt_later_generation_json(data)
    try:
        wire = json_format.ParseDict(data, AngzarrDeadLetter())
    except json_format.ParseError:
        return _read_json_of_others(data, bounds)
    return from_wire(wire, bounds)


def _read_json_of_others(data: dict[str, Any], bounds: Bounds) -> DeadLetter:
    """Read JSON with fields or payload types we do not know; it is kept whole in the envelope."""
    known = without_unknown_types(data)
    try:
        wire = json_format.ParseDict(known, AngzarrDeadLetter(), ignore_unknown_fields=True)
    except json_format.ParseError as error:
        refused = _REFUSED.search(str(error))
        where = f": its {refused[1]} is malformed" if refused else ""
        msg = f"the letter's JSON is not an AngzarrDeadLetter{where}"
        raise DecodeError(msg) from error
    require_letter(wire)
    rest = {key: value for key, value in data.items() if key not in _RESTATED}
    letter = replace(view(wire, bounds), envelope=_json_bytes(rest))
    if task_message(wire, bounds):
        return letter
    book: Any = next((rest[key] for key in _BOOKS if key in rest), None)
    if book is None:
        return letter
    letter = replace(letter, cover=_with_type(letter.cover, book))
    message = replace(
        letter.message,
        body=_json_bytes(book),
        content_type=letter.message.content_type.replace("x-protobuf", "json"),
        content_encoding="utf-8",
    )
    return replace(letter, message=message)


def _with_type(cover: ForeignCover | None, book: Any) -> ForeignCover | None:
    """*cover* with the type of the first page of *book*, which protobuf did not see."""
    for page in book.get("pages") or ():
        for field in _PAYLOADS:
            payload = page.get(field) if isinstance(page, dict) else None
            if isinstance(payload, dict) and payload.get("@type"):
                return (cover or ForeignCover())._replace(event_type=type_name(payload["@type"]))
    return cover


def without_unknown_types(value: Any) -> Any:
    """JSON *value* with each Any but our own TaskMessage emptied: its type is unknown."""
    if isinstance(value, list):
        return [without_unknown_types(item) for item in value]
    if not isinstance(value, dict):
        return value
    url = value.get("@type")
    if url is not None and str(url).rpartition("/")[2] != TASK_MESSAGE:
        return {}
    return {key: without_unknown_types(item) for key, item in value.items()}


def _own_json(letter: DeadLetter) -> bytes:
    written = write_own(letter)
    try:
        return orjson.dumps(written)
    except orjson.JSONEncodeError:  # a text is no valid UTF-8; to look at each beforehand is dear
        return orjson.dumps(valid_tree(written))


def _rewrite(letter: DeadLetter) -> bytes:
    data = json.loads(letter.envelope)
    data["metadata"] = valid_mapping(write_metadata(letter))
    data["rejectionReason"] = valid_text(cut_message(letter.explanation))
    data["sourceComponent"] = valid_text(letter.component)
    data["sourceComponentType"] = valid_text(letter.component_type)
    return _json_bytes(data)


def _json_bytes(value: object) -> bytes:
    return json.dumps(value).encode()
