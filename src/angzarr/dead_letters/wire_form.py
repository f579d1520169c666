"""DeadLetter ↔ the protobuf message AngzarrDeadLetter (spec L3).

What a message of others holds beyond our fields is kept in `DeadLetter.envelope` and written back.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final
from uuid import UUID

from google.protobuf.message import DecodeError as ProtobufDecodeError

from angzarr.dead_letters.bounds import WIDEST, check_letter_wire
from angzarr.dead_letters.foreign import cover_of, facts_of_details, mismatch_in, view_of_payload
from angzarr.dead_letters.letter import (
    UNDATED,
    DeadLetter,
    Mismatch,
    Reason,
    cut_message,
    unreadable_letter_id,
)
from angzarr.dead_letters.metadata import derived, read_facts, write_metadata
from angzarr.dead_letters.queue import UNKNOWN_DOMAIN
from angzarr.dead_letters.task_message import (
    Held,
    read_message,
    time_in,
    write_message,
    write_retrieval,
)
from angzarr.dead_letters.text import valid_mapping, valid_text
from angzarr.errors import DecodeError
from angzarr.events.event import Event
from angzarr.runtime.json_bounds import Bounds
from angzarr.wire.book_pb2 import EventPage
from angzarr.wire.dead_letter_pb2 import AngzarrDeadLetter, SequenceMismatchDetails
from angzarr.wire.worker_pb2 import TaskMessage

#: Full name of the message inside a page that holds a Celery delivery.
TASK_MESSAGE: Final = "angzarr.worker.TaskMessage"

_MAX_UINT32: Final = 2**32
#: What a letter says of itself anew each time it is written.
_RESTATED: Final = ("metadata", "rejection_reason", "source_component", "source_component_type")
#: Fields by which a letter is known; the names of all others are in messages of anybody's.
_TELLING: Final = ("payload", "rejection_details")


def to_wire(letter: DeadLetter) -> AngzarrDeadLetter:
    """*letter* as the protobuf message, on top of its envelope where it has one."""
    wire = AngzarrDeadLetter()
    if letter.envelope:
        wire.ParseFromString(letter.envelope)
    else:
        _write_payload(wire, letter)
    wire.rejection_reason = valid_text(cut_message(letter.explanation))
    wire.source_component = valid_text(letter.component)
    wire.source_component_type = valid_text(letter.component_type)
    wire.metadata.update(valid_mapping(write_metadata(letter)))
    return wire


def _write_payload(wire: AngzarrDeadLetter, letter: DeadLetter) -> None:
    wire.cover.domain = valid_text(letter.domain)
    page = wire.rejected_events.pages.add()
    if letter.event:
        _write_cover(wire, letter.event)
        _write_page(page, letter.event)
    wire.rejected_events.cover.CopyFrom(wire.cover)
    page.event.Pack(write_message(letter.message, letter.event, letter.payload), deterministic=True)
    wire.occurred_at.FromDatetime(letter.sent_to_dlq_at)
    if letter.mismatch is not None:
        _write_mismatch(wire.sequence_mismatch, letter.mismatch)
        return
    if letter.payload is not None and letter.lacks_payload:
        error = cut_message(letter.error_message)
        write_retrieval(wire.payload_retrieval_failed, letter.payload, error)
        return
    wire.event_processing_failed.error = valid_text(cut_message(letter.error_message))
    wire.event_processing_failed.retry_count = min(max(letter.attempts, 0), _MAX_UINT32 - 1)
    wire.event_processing_failed.is_transient = letter.category == "transient"


def _write_mismatch(details: SequenceMismatchDetails, mismatch: Mismatch) -> None:
    details.expected_sequence = min(max(mismatch.expected, 0), _MAX_UINT32 - 1)
    details.actual_sequence = min(max(mismatch.actual, 0), _MAX_UINT32 - 1)
    details.merge_strategy = mismatch.strategy  # type: ignore[assignment]  # any int32


def _write_cover(wire: AngzarrDeadLetter, event: Event) -> None:
    wire.cover.correlation_id = valid_text(event.correlation_id or "")
    if event.edition:
        wire.cover.edition.name = valid_text(event.edition)
    try:
        wire.cover.root.value = UUID(event.root or "").bytes
    except ValueError:  # no UUID: others could not read it, entity_id and TaskMessage say it
        return


def _write_page(page: EventPage, event: Event) -> None:
    if event.sequence is not None and 0 <= event.sequence < _MAX_UINT32:
        page.header.sequence = event.sequence
    if event.occurred_at is not None:
        page.created_at.FromDatetime(event.occurred_at)


def from_wire(wire: AngzarrDeadLetter, bounds: Bounds = WIDEST) -> DeadLetter:
    """*wire* as a letter; raises DecodeError, ValueError or TypeError."""
    require_letter(wire)
    letter = view(wire, bounds)
    rest = _without_restated(wire)
    if rest == _without_restated(to_wire(letter)):
        return letter
    envelope = rest.SerializeToString(deterministic=True)
    if envelope.startswith(b"{"):  # the tag of an unknown group: not to be taken for JSON later
        msg = "the letter holds nothing but unknown fields"
        raise DecodeError(msg)
    return replace(letter, envelope=envelope)


def require_letter(wire: AngzarrDeadLetter) -> None:
    """Raise DecodeError unless *wire* says what was rejected or why.

    Fields that are not known are kept in a letter, so all JSON and much else would pass for one.
    """
    if not (wire.rejection_reason or any(map(wire.WhichOneof, _TELLING))):
        msg = "it is not a letter of angzarr: it says neither what was rejected nor why"
        raise DecodeError(msg)


def view(wire: AngzarrDeadLetter, bounds: Bounds) -> DeadLetter:
    """All of *wire* that DeadLetter has fields for."""
    facts, rest = read_facts(wire.metadata)
    task = task_message(wire, bounds)
    held = read_message(task, bounds) if task else Held(view_of_payload(wire))
    told = {
        "id": "",
        "reason": Reason.REFUSED,
        "handler": "",
        "sent_to_dlq_at": time_in(wire.occurred_at) or UNDATED,
        **({} if task else facts_of_details(wire)),
        **facts,
    }
    letter = DeadLetter(
        domain=wire.cover.domain,
        explanation=wire.rejection_reason,
        message=held.message,
        event=held.event,
        payload=held.payload,
        cover=None if task else cover_of(wire),
        component=wire.source_component,
        component_type=wire.source_component_type,
        mismatch=mismatch_in(wire),
        **told,
    )
    if not letter.id:
        letter = replace(letter, id=_foreign_id(wire))
    ours = derived(letter.id, held.message, held.event)
    return replace(letter, metadata={k: v for k, v in rest.items() if ours.get(k) != v})


def _foreign_id(wire: AngzarrDeadLetter) -> str:
    domain = wire.cover.domain or UNKNOWN_DOMAIN
    ordered = AngzarrDeadLetter()
    ordered.CopyFrom(wire)
    _order(ordered)
    return unreadable_letter_id(domain, ordered.SerializeToString(deterministic=True))


def task_message(wire: AngzarrDeadLetter, bounds: Bounds = WIDEST) -> TaskMessage | None:
    """The Celery delivery inside *wire*, or None where others wrote something else."""
    pages = wire.rejected_events.pages
    if len(pages) != 1 or pages[0].event.type_url.rpartition("/")[2] != TASK_MESSAGE:
        return None
    check_letter_wire(pages[0].event.value, TaskMessage.DESCRIPTOR, bounds)
    try:
        return TaskMessage.FromString(pages[0].event.value)
    except ProtobufDecodeError as error:
        msg = "the TaskMessage inside the letter is malformed"
        raise DecodeError(msg) from error


def _without_restated(wire: AngzarrDeadLetter) -> AngzarrDeadLetter:
    rest = AngzarrDeadLetter()
    rest.CopyFrom(wire)
    for field in _RESTATED:
        rest.ClearField(field)
    _order(rest)
    return rest


def _order(wire: AngzarrDeadLetter) -> None:
    """Put the map entries of the TaskMessage in *wire* into one order, to be comparable.

    Protobuf orders them by chance, in each process anew, where it reads them from JSON.
    """
    if task := task_message(wire):
        page = wire.rejected_events.pages[0]
        page.event.value = task.SerializeToString(deterministic=True)
