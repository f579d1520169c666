"""Story: everything that is known of a rejected command, in the order in which it happened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from angzarr.aggregates.book import Book, EventBooks
from angzarr.errors import DecodeError
from angzarr.events.event import Event
from angzarr.sagas.escalation import escalation_id
from angzarr.sagas.failure import failure_id
from angzarr.sagas.flags import Step
from angzarr.sagas.log import Case, RejectionLog
from angzarr.sagas.rejection import Rejection, read_rejection


class Shelves(Protocol):
    """Event books, and what became of rejected commands."""

    @property
    def books(self) -> EventBooks:
        """The event books."""

    @property
    def rejections(self) -> RejectionLog:
        """What became of rejected commands."""

    def close(self) -> None:
        """Let connections go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """A case, and what its source's book says of it."""

    case: Case
    #: The rejected command; None: it is not kept, or cannot be read.
    rejection: Rejection | None = None
    #: The event that the saga answered. None: it stands in no book of the source, as where a
    #: process manager answered somebody else's.
    trigger: Event | None = None
    #: What the source appended.
    compensation: Sequence[Event] = ()
    #: The ids of the escalation and of `SagaCompensationFailed`; empty: there is none.
    escalation: str = ""
    failure: str = ""


def story_of(books: EventBooks, case: Case) -> Story:
    """Return the story of *case*; raises StoreUnavailable."""
    rejection = _rejection(case)
    book, decision = books.read(case.source, cause=case.id, whole=True)
    return Story(
        case=case,
        rejection=rejection,
        trigger=_trigger(book, case, rejection),
        compensation=decision.events if decision else (),
        escalation=_made(case, Step.ESCALATE, escalation_id),
        failure=_made(case, Step.REVOKE, failure_id),
    )


def _made(case: Case, step: Step, id_of: Callable[[str, str], str]) -> str:
    return id_of(case.id, case.answer) if step in case.steps else ""


def _rejection(case: Case) -> Rejection | None:
    try:
        return None if case.rejection is None else read_rejection(case.rejection)
    except DecodeError:
        return None


def _trigger(book: Book, case: Case, rejection: Rejection | None) -> Event | None:
    """Return the event of *book* that led to the command, if it is the one that it names."""
    if not 0 <= case.source_sequence < len(book.events):
        return None
    found = book.events[case.source_sequence]
    return found if rejection and rejection.command.event.causation_id == found.id else None
