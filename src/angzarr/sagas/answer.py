"""Answer: what an aggregate said to a rejection, whatever form it used (spec C5). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeGuard

from angzarr.aggregates.aggregate import check_event, listed
from angzarr.aggregates.payload_form import unpack
from angzarr.errors import DecodeError, NotAnEvent
from angzarr.events.codec import Typed
from angzarr.sagas.flags import Flags
from angzarr.sagas.saga import Send
from angzarr.wire.book_pb2 import EventBook
from angzarr.wire.rejection_pb2 import BusinessResponse, Notification, RevocationResponse


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
    """Return what *said*, the value that a method returned, means.

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
    """Return the answer of a process manager: what it recorded, and what it asks for."""
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
    """Return the events of a compensation book; its sequences are placeholders."""
    found = []
    for page in book.pages:
        if page.WhichOneof("payload") != "event":
            msg = "a page of the compensation holds no event"
            raise DecodeError(msg)
        found.append(Typed(*unpack(page.event)))
    return found


def flags_of(said: Flags | RevocationResponse) -> Flags:
    """Return *said* in our form."""
    if isinstance(said, Flags):
        return said
    return Flags(
        emit_system_revocation=said.emit_system_revocation,
        send_to_dead_letter_queue=said.send_to_dead_letter_queue,
        escalate=said.escalate,
        abort=said.abort,
        reason=said.reason,
    )
