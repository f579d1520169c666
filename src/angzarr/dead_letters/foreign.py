"""Letters that others wrote: a view of what they hold, and the two generations of the wire form.

Foreign fields: what a letter of others holds that this release does not know. Pure.

It is kept, and travels on. A task that took the letter by a route would not be given it.
"""

from __future__ import annotations

import json
import uuid
from typing import Any, Final

from google.protobuf.message import Message as Wire
from google.protobuf.unknown_fields import UnknownFieldSet

from angzarr.dead_letters.letter import ForeignCover, Mismatch, Reason
from angzarr.events.event import Message
from angzarr.wire.book_pb2 import MergeStrategy
from angzarr.wire.dead_letter_pb2 import AngzarrDeadLetter

#: Full names of the letter: ours, and that of the later generation, which we read.
TYPE_NAME: Final = "angzarr.AngzarrDeadLetter"
LATER_TYPE_NAME: Final = "io.angzarr.v1.AngzarrDeadLetter"

_UUID_BYTES: Final = 16
_PROTOBUF: Final = 'application/x-protobuf; messageType="{}"'


def view_of_payload(letter: AngzarrDeadLetter) -> Message:
    """The rejected command or events as a Message that names no task and no queue."""
    which = letter.WhichOneof("payload")
    if which is None:
        return Message(body=b"", content_type="", content_encoding="", headers={}, queue="")
    book = getattr(letter, which)
    return Message(
        body=book.SerializeToString(deterministic=True),
        content_type=_PROTOBUF.format(book.DESCRIPTOR.full_name),
        content_encoding="binary",
        headers={},
        queue="",
    )


def cover_of(letter: AngzarrDeadLetter) -> ForeignCover | None:
    """The cover of *letter*; None where it says nothing."""
    which = letter.WhichOneof("payload")
    book = getattr(letter, which) if which else None
    cover = letter.cover if letter.HasField("cover") or book is None else book.cover
    found = ForeignCover(root_text(cover.root.value), cover.correlation_id, _type_in(book, which))
    return found if any(found) else None


def type_name(url: object) -> str:
    """The full name of a type by its URL."""
    return str(url).rpartition("/")[2]


def root_text(raw: bytes) -> str:
    """An aggregate's root as a UUID, else in hex; empty where there is none."""
    return str(uuid.UUID(bytes=raw)) if len(raw) == _UUID_BYTES else raw.hex()


def _type_in(book: Any, which: str | None) -> str:
    field = "command" if which == "rejected_command" else "event"
    pages = book.pages if book is not None else ()
    return next((name for page in pages if (name := type_name(getattr(page, field).type_url))), "")


def mismatch_in(letter: AngzarrDeadLetter) -> Mismatch | None:
    """The mismatch of a stale command, if that is why."""
    if letter.WhichOneof("rejection_details") != "sequence_mismatch":
        return None
    told = letter.sequence_mismatch
    return Mismatch(told.expected_sequence, told.actual_sequence, told.merge_strategy)


def facts_of_details(letter: AngzarrDeadLetter) -> dict[str, Any]:
    """The fields of DeadLetter that typed details tell, where metadata does not."""
    match letter.WhichOneof("rejection_details"):
        case "event_processing_failed":
            failed = letter.event_processing_failed
            return {
                "reason": Reason.EXHAUSTED,
                "error_message": failed.error,
                "attempts": failed.retry_count,
                "category": "transient" if failed.is_transient else "unknown",
            }
        case "sequence_mismatch":
            return {
                "reason": Reason.SEQUENCE_MISMATCH,
                "error_type": "SequenceMismatch",
                "error_message": str(mismatch_in(letter)),
            }
        case "payload_retrieval_failed":
            lost = letter.payload_retrieval_failed
            return {
                "reason": Reason.UNDELIVERABLE,
                "error_type": "PayloadRetrievalFailed",
                "error_message": lost.error,
            }
        case _:
            return {}


def adopt_later_generation(message: Wire) -> None:
    """Renumber the merge strategies of a message read as the later generation, in place.

    It put an unspecified value first, so its numbers are one higher; unspecified is read as
    commutative, our zero. What an Any holds stays as it came.
    """
    for field, value in message.ListFields():
        if field.enum_type == MergeStrategy.DESCRIPTOR:
            setattr(message, field.name, max(value - 1, 0))
        elif field.message_type and not field.message_type.GetOptions().map_entry:
            for one in value if field.is_repeated else (value,):
                adopt_later_generation(one)


def adopt_later_generation_json(
    message: dict[str, Any], kind: Any = AngzarrDeadLetter.DESCRIPTOR
) -> None:
    """Do the same to the JSON of a *kind*: names are the same, an unspecified one is dropped.

    The parser refuses a value that is not an object where one belongs.
    """
    for field in kind.fields:
        for name in {field.json_name, field.name} & message.keys():
            value = message[name]
            if field.enum_type == MergeStrategy.DESCRIPTOR:
                _adopt_strategy(message, name)
            elif field.message_type:
                for one in value if isinstance(value, list) else (value,):
                    if isinstance(one, dict):
                        adopt_later_generation_json(one, field.message_type)


def _adopt_strategy(holder: dict[str, Any], name: str) -> None:
    value = holder[name]
    if isinstance(value, int):
        holder[name] = max(value - 1, 0)
    elif isinstance(value, str) and value not in MergeStrategy.keys():  # noqa: SIM118  an enum
        del holder[name]


_ANY = "google.protobuf.Any"


def unknown_field(envelope: bytes) -> str:
    """The name, or the number, of a field that is not known; empty where all are.

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
