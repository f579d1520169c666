"""Foreign pages: what a letter of others holds, as JSON values that a handler can take. Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from google.protobuf import json_format
from google.protobuf.message import DecodeError as ProtobufDecodeError

from angzarr.dead_letters.foreign import root_text
from angzarr.dead_letters.json_form import without_unknown_types
from angzarr.dead_letters.refusal import Refusal
from angzarr.dead_letters.task_message import time_in
from angzarr.runtime.machine_faults import is_machine_fault
from angzarr.wire.dead_letter_pb2 import AngzarrDeadLetter

#: By the field of the letter: what it is called in JSON, and the field of its pages.
_BOOKS: Final = {
    "rejected_events": ("events", ("rejectedEvents", "rejected_events"), "event"),
    "rejected_command": ("command", ("rejectedCommand", "rejected_command"), "command"),
}
_NOTHING: Final = "the letter holds no event and no command"


class Book(NamedTuple):
    """The rejected events or command, with what the cover says."""

    #: ``events`` or ``command``.
    kind: str
    root: str | None
    correlation_id: str | None
    edition: str | None
    #: Each with ``sequence``, ``created_at``, ``type``, and ``data``, ``value`` or ``external``.
    pages: Sequence[dict[str, Any]]


def read_book(envelope: bytes) -> Book | Refusal:
    """Return what the *envelope* of a letter of others holds, or why nothing.

    Raises what a machine lacks, such as memory: protobuf says so by a DecodeError.
    """
    try:
        return _from_json(envelope) if envelope.startswith(b"{") else _from_binary(envelope)
    except (ProtobufDecodeError, json_format.ParseError, ValueError, RecursionError) as error:
        if is_machine_fault(error):
            raise
        return Refusal(f"the letter's payload cannot be read ({type(error).__name__})")


def _from_binary(envelope: bytes) -> Book | Refusal:
    letter = AngzarrDeadLetter.FromString(envelope)
    contents = [_content(page, field) for page, field in _pages_of(letter)]
    return _book(letter, contents)


def _from_json(envelope: bytes) -> Book | Refusal:
    """Read JSON whose payload types are not known here: their fields are the data."""
    data = json.loads(envelope)
    letter = json_format.ParseDict(
        without_unknown_types(data), AngzarrDeadLetter(), ignore_unknown_fields=True
    )
    which = letter.WhichOneof("payload")
    if which is None:
        return Refusal(_NOTHING)
    _, spellings, field = _BOOKS[which]
    given = next(data[name] for name in spellings if name in data).get("pages", [])
    contents = [
        _json_content(page[field]) if isinstance(page.get(field), dict) else _content(read, field)
        for page, (read, _) in zip(given, _pages_of(letter), strict=True)
    ]
    return _book(letter, contents)


def _book(letter: AngzarrDeadLetter, contents: Sequence[dict[str, Any]]) -> Book | Refusal:
    which = letter.WhichOneof("payload")
    if which is None or not contents:
        return Refusal(_NOTHING)
    cover = letter.cover if letter.HasField("cover") else getattr(letter, which).cover
    pages = [
        {"sequence": _sequence(page), "created_at": _created_at(page), **content}
        for (page, _), content in zip(_pages_of(letter), contents, strict=True)
    ]
    return Book(
        kind=_BOOKS[which][0],
        root=root_text(cover.root.value) or None,
        correlation_id=cover.correlation_id or None,
        edition=cover.edition.name or None,
        pages=pages,
    )


def _pages_of(letter: AngzarrDeadLetter) -> list[tuple[Any, str]]:
    """Return the pages of *letter*, each with the name of the field that its payload is in."""
    which = letter.WhichOneof("payload")
    if which is None:
        return []
    return [(page, _BOOKS[which][2]) for page in getattr(letter, which).pages]


def _content(page: Any, field: str) -> dict[str, Any]:
    if page.WhichOneof("payload") == "external":
        reference = json_format.MessageToDict(page.external, preserving_proto_field_name=True)
        return {"type": "", "external": reference}
    payload = getattr(page, field)
    value = base64.b64encode(payload.value).decode()
    return {"type": payload.type_url.rpartition("/")[2], "value": value}


def _json_content(payload: dict[str, Any]) -> dict[str, Any]:
    data = {name: value for name, value in payload.items() if name != "@type"}
    return {"type": str(payload.get("@type", "")).rpartition("/")[2], "data": data}


def _sequence(page: Any) -> int | None:
    return page.header.sequence if page.header.WhichOneof("sequence_type") == "sequence" else None


def _created_at(page: Any) -> str | None:
    """Return when the page was made; pages of commands do not say."""
    if "created_at" not in page.DESCRIPTOR.fields_by_name or not page.HasField("created_at"):
        return None
    moment = time_in(page.created_at)
    return moment.isoformat() if moment else None
