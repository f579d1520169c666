"""Revoking: the protobuf forms of a rejection and of what is answered, for other languages (C4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import NamedTuple, TypeAlias

from angzarr.aggregates.aggregate import listed
from angzarr.aggregates.payload_form import pack
from angzarr.aggregates.wire_form import command_to_wire, cover_of
from angzarr.errors import NotAnEvent
from angzarr.events.codec import event_type_of, to_json
from angzarr.sagas.answer import Answer, answer_of, check_answered, flags_of
from angzarr.sagas.context import SAGA_NAME, CompensationContext
from angzarr.sagas.flags import Flags, Result, Step
from angzarr.sagas.saga import Send
from angzarr.wire.book_pb2 import CommandBook, EventBook
from angzarr.wire.rejection_pb2 import (
    BusinessResponse,
    Notification,
    RejectionNotification,
    RevocationResponse,
    RevokeEventCommand,
)

#: Does one step, for a reason.
CarryOut: TypeAlias = Callable[[Step, str], None]


class Outcome(NamedTuple):
    """How it ended, and why."""

    result: Result
    reason: str


def emit_compensation_events(events: object) -> BusinessResponse:
    """Answer with events: a book, or one event or several of which one is made.

    Sequences are placeholders. Raises NotAnEvent, UnserializableEvent.
    """
    return BusinessResponse(events=_book(events))


def delegate_to_framework(reason: str, *, emit_system_event: bool = True) -> BusinessResponse:
    """Answer that the framework is to see to it."""
    asked = RevocationResponse(emit_system_revocation=emit_system_event, reason=reason)
    return BusinessResponse(revocation=asked)


def pm_emit_compensation_events(
    process_events: object,
    *,
    also_emit_system_event: bool = False,
    reason: str = "",
) -> tuple[EventBook, RevocationResponse]:
    """Answer, as a process manager, with events for its own book."""
    asked = RevocationResponse(emit_system_revocation=also_emit_system_event, reason=reason)
    return _book(process_events), asked


def pm_delegate_to_framework(reason: str) -> tuple[None, RevocationResponse]:
    """Answer, as a process manager, that the framework is to see to it."""
    return None, RevocationResponse(emit_system_revocation=True, reason=reason)


def revoke_command(context: CompensationContext) -> RevokeEventCommand:
    """Return the older form of a rejection."""
    return RevokeEventCommand(
        triggering_event_sequence=context.saga_origin.sequence,
        saga_name=context.saga_origin.saga,
        rejection_reason=context.rejection_reason,
        rejected_command=command_to_wire(context.rejected_command),
    )


def build_revoke_command_book(context: CompensationContext) -> CommandBook:
    """Return the older form as a command to the source; its sequence is a placeholder."""
    book = CommandBook(cover=cover_of(context.saga_origin.source, context.correlation_id))
    page = book.pages.add()
    page.header.sequence = 0
    page.command.Pack(revoke_command(context), deterministic=True)
    return book


def notification_of(context: CompensationContext, now: datetime) -> Notification:
    """Return the notification of a rejection; the name of the saga stands in its metadata."""
    written = Notification(
        cover=cover_of(context.saga_origin.source, context.correlation_id),
        metadata={SAGA_NAME: context.saga_origin.saga},
    )
    told = RejectionNotification(
        rejected_command=command_to_wire(context.rejected_command),
        rejection_reason=context.rejection_reason,
    )
    written.payload.Pack(told, deterministic=True)
    written.sent_at.FromDatetime(now)
    return written


def handle_business_response(response: BusinessResponse, carry_out: CarryOut) -> Outcome | Answer:
    """Return what *response* answers; flags are carried out at once. Raises DecodeError.

    Events and a notification are left to the caller, as is an answer that says nothing: None.
    """
    answer = answer_of(response)
    return process_revocation_flags(answer, carry_out) if isinstance(answer, Flags) else answer


def process_revocation_flags(flags: Flags | RevocationResponse, carry_out: CarryOut) -> Outcome:
    """Carry out what *flags* ask for, in order, and return how it ended (spec C5).

    An abort is told by the result: the caller stops the chain. Raises what *carry_out* does.
    """
    asked = flags_of(flags)
    for step in asked.steps():
        if step is not Step.ABORT:
            carry_out(step, asked.reason)
    return Outcome(asked.result, asked.reason)


def _book(events: object) -> EventBook:
    if isinstance(events, EventBook):
        return events
    book = EventBook()
    for event in listed(list(events) if isinstance(events, Iterator) else events):
        check_answered(event)
        if isinstance(event, Send):
            raise NotAnEvent("a command is not a page of a book of events: return the Send itself")
        page = book.pages.add()
        page.header.sequence = 0
        page.event.CopyFrom(pack(event_type_of(event), to_json(event)))
    return book
