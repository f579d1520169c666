"""Answers to a rejection: events, a notification, or flags that hand it to the framework (spec C5).

An aggregate may answer in Python or in the protobuf forms that other languages use (C4). Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import ClassVar, NamedTuple, TypeAlias, TypeGuard

from angzarr.aggregates.aggregate import listed
from angzarr.aggregates.command import check_event
from angzarr.aggregates.wire_form import command_to_wire, cover_of, pack, unpack
from angzarr.errors import DecodeError, NotAnEvent
from angzarr.events.event import Typed, event_type_of, to_json
from angzarr.sagas.rejection import SAGA_NAME, CompensationContext
from angzarr.sagas.saga import Send
from angzarr.wire.book_pb2 import CommandBook, EventBook
from angzarr.wire.rejection_pb2 import (
    BusinessResponse,
    Notification,
    RejectionNotification,
    RevocationResponse,
    RevokeEventCommand,
)


class CompensationStep(StrEnum):
    """The steps that flags lead to, in the order in which they are done."""

    DEAD_LETTER = "dead_letter"
    ESCALATE = "escalate"
    ABORT = "abort"
    REVOKE = "revoke"


class Result(StrEnum):
    """How the compensation of a rejected command ended."""

    #: The aggregate appended events.
    COMPENSATED = "compensated"
    #: `SagaCompensationFailed` was emitted.
    REVOKED = "revoked"
    #: Nothing is undone.
    DECLINED = "declined"
    #: The chain was stopped.
    ABORTED = "aborted"
    #: The aggregate answered with a notification, which was sent on.
    FORWARDED = "forwarded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """The wire calls it a RevocationResponse."""

    __no_event__: ClassVar[str] = "the answer to a rejection"

    emit_system_revocation: bool = False
    send_to_dead_letter_queue: bool = False
    escalate: bool = False
    abort: bool = False
    reason: str = ""

    def steps(self) -> Iterator[CompensationStep]:
        """Yield what is done, in order: an abort ends it."""
        if self.send_to_dead_letter_queue:
            yield CompensationStep.DEAD_LETTER
        if self.escalate:
            yield CompensationStep.ESCALATE
        if self.abort:
            yield CompensationStep.ABORT
            return
        if self.emit_system_revocation:
            yield CompensationStep.REVOKE

    @property
    def result(self) -> Result:
        """How it ends: without an abort and a system revocation, whatever else is set, declined."""
        if self.abort:
            return Result.ABORTED
        return Result.REVOKED if self.emit_system_revocation else Result.DECLINED


@dataclass(frozen=True, slots=True)
class Compensation:
    """Events that undo what was done, and commands that go with them; perhaps flags besides."""

    events: Sequence[object] = ()
    sends: Sequence[Send] = ()
    flags: Flags | None = None


@dataclass(frozen=True, slots=True)
class Forward:
    """A notification that goes on to whom its cover names."""

    notification: Notification


#: None: nothing was answered.
Answer: TypeAlias = Compensation | Forward | Flags | None

#: Answers of their own, which do not stand among events.
_ALONE = (Flags, BusinessResponse, EventBook, Notification, RevocationResponse)


def answer_of(said: object) -> Answer:  # noqa: PLR0911 - one case for each form
    """The meaning of *said*, the value that a method returned.

    Events, `Send` and lists of them; `Flags`; `(events, Flags)`, as process managers answer; and
    their protobuf forms. Raises NotAnEvent for what is none of these.
    """
    match said:
        case None:
            return None
        case Flags():
            return said
        case RevocationResponse():
            return flags_of(said)
        case BusinessResponse():
            return _response(said)
        case EventBook():
            return _compensation(_pages(said), None)
        case Notification():
            return Forward(said)
        case (events, flags) if isinstance(said, tuple) and _is_flags(flags):
            return _both(events, flags)
        case _:
            return _compensation(said, None)


def _response(said: BusinessResponse) -> Answer:
    match said.WhichOneof("result"):
        case "events":
            return _compensation(_pages(said.events), None)
        case "revocation":
            return flags_of(said.revocation)
        case "notification":
            return Forward(said.notification)
        case _:
            return None


def _both(events: object, flags: Flags | RevocationResponse) -> Answer:
    """The answer of a process manager: what it recorded, and what it asks for."""
    asked = flags_of(flags)
    recorded = _pages(events) if isinstance(events, EventBook) else events
    return _compensation(recorded, asked) or asked


def _is_flags(said: object) -> TypeGuard[Flags | RevocationResponse]:
    return isinstance(said, Flags | RevocationResponse)


def _compensation(said: object, flags: Flags | None) -> Compensation | None:
    answered = listed(said)
    for one in answered:
        check_answered(one)
    if not answered:
        return None
    sends = [one for one in answered if isinstance(one, Send)]
    events = [one for one in answered if not isinstance(one, Send)]
    return Compensation(events, sends, flags)


def check_answered(one: object) -> None:
    """Refuse what does not stand among events; raises NotAnEvent."""
    if isinstance(one, _ALONE):
        msg = f"{type(one).__name__} stands for itself: return it alone, not among events"
        raise NotAnEvent(msg)
    if not isinstance(one, Send):
        check_event(one)


def _pages(book: EventBook) -> list[Typed]:
    """The events of a compensation book; its sequences are placeholders."""
    found = []
    for page in book.pages:
        if page.WhichOneof("payload") != "event":
            msg = "a page of the compensation holds no event"
            raise DecodeError(msg)
        found.append(Typed(*unpack(page.event)))
    return found


def flags_of(said: Flags | RevocationResponse) -> Flags:
    """*said* in our form."""
    if isinstance(said, Flags):
        return said
    return Flags(
        emit_system_revocation=said.emit_system_revocation,
        send_to_dead_letter_queue=said.send_to_dead_letter_queue,
        escalate=said.escalate,
        abort=said.abort,
        reason=said.reason,
    )


#: Does one step, for a reason.
CarryOut: TypeAlias = Callable[[CompensationStep, str], None]


class RevocationOutcome(NamedTuple):
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
    """The older form of a rejection."""
    return RevokeEventCommand(
        triggering_event_sequence=context.saga_origin.sequence,
        saga_name=context.saga_origin.saga,
        rejection_reason=context.rejection_reason,
        rejected_command=command_to_wire(context.rejected_command),
    )


def build_revoke_command_book(context: CompensationContext) -> CommandBook:
    """The older form as a command to the source; its sequence is a placeholder."""
    book = CommandBook(cover=cover_of(context.saga_origin.source, context.correlation_id))
    page = book.pages.add()
    page.header.sequence = 0
    page.command.Pack(revoke_command(context), deterministic=True)
    return book


def notification_of(context: CompensationContext, now: datetime) -> Notification:
    """The notification of a rejection; the name of the saga stands in its metadata."""
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


def handle_business_response(
    response: BusinessResponse, carry_out: CarryOut
) -> RevocationOutcome | Answer:
    """The answer in *response*; flags are carried out at once. Raises DecodeError.

    Events and a notification are left to the caller, as is an answer that says nothing: None.
    """
    answer = answer_of(response)
    return process_revocation_flags(answer, carry_out) if isinstance(answer, Flags) else answer


def process_revocation_flags(
    flags: Flags | RevocationResponse, carry_out: CarryOut
) -> RevocationOutcome:
    """Carry out what *flags* ask for, in order, and return how it ended (spec C5).

    The result says abort: the caller stops the chain. Raises what *carry_out* does.
    """
    asked = flags_of(flags)
    for step in asked.steps():
        if step is not CompensationStep.ABORT:
            carry_out(step, asked.reason)
    return RevocationOutcome(asked.result, asked.reason)


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
