"""Story: everything that is known of a rejected command, in the order in which it happened.

It is shown to people as lines and to programs as JSON, whose names do not change. Texts and data
are redacted as in letters (spec L3).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from angzarr.aggregates.book import Book, EventBooks
from angzarr.dead_letters.letter import DeadLetter, Reason
from angzarr.dead_letters.redaction import Redaction
from angzarr.errors import DecodeError
from angzarr.events.event import Event, Message
from angzarr.sagas.escalation import escalation_id, failure_id
from angzarr.sagas.log import Case, Page, RejectionLog, RejectionStatus
from angzarr.sagas.rejection import Rejection, read_rejection
from angzarr.sagas.rejection_answers import CompensationStep

#: Returns an event's data without what is hidden.
HideData: TypeAlias = Callable[[Event], Any]

#: Stands in a letter that is not kept.
_NOBODY: Final = ""


class Hiding(NamedTuple):
    """Hides what the settings hide in letters."""

    redaction: Redaction

    def of_case(self, case: Case, command: Event | None = None) -> Case:
        """*case* with its texts redacted: what is hidden in *command* is hidden there, too.

        Lists, which do not read commands, hide what looks like a secret.
        """
        letter = replace(_letter(case, command), explanation=case.reason, error_message=case.answer)
        shown = self.redaction(letter)
        return replace(case, reason=shown.explanation, answer=shown.error_message)

    def data(self, case: Case, event: Event) -> Any:
        """The data of *event*, which belongs to *case*, redacted."""
        shown = self.redaction(_letter(case, event)).event
        return shown.data if shown else None


def _letter(case: Case, event: Event | None) -> DeadLetter:
    """The letter that the message of *event* would be in."""
    body = b"" if event is None else json.dumps([[event.data], {}, {}]).encode()
    message = Message(
        body=body, content_type="application/json", content_encoding="utf-8", headers={}, queue=""
    )
    return DeadLetter(
        id=case.id,
        domain=case.source.domain,
        handler=_NOBODY,
        reason=Reason.REFUSED,
        explanation="",
        message=message,
        event=event,
        sent_to_dlq_at=case.rejected_at,
    )


class EventStores(Protocol):
    """Event books, and what became of rejected commands."""

    @property
    def books(self) -> EventBooks:
        """The event books."""

    @property
    def rejections(self) -> RejectionLog:
        """The log of rejected commands."""

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
    """The story of *case*; raises StoreUnavailable."""
    rejection = _rejection(case)
    book, decision = books.read(case.source, cause=case.id, whole=True)
    return Story(
        case=case,
        rejection=rejection,
        trigger=_trigger(book, case, rejection),
        compensation=decision.events if decision else (),
        escalation=_made(case, CompensationStep.ESCALATE, escalation_id),
        failure=_made(case, CompensationStep.REVOKE, failure_id),
    )


def _made(case: Case, step: CompensationStep, id_of: Callable[[str, str], str]) -> str:
    return id_of(case.id, case.answer) if step in case.steps else ""


def _rejection(case: Case) -> Rejection | None:
    try:
        return None if case.rejection is None else read_rejection(case.rejection)
    except DecodeError:
        return None


def _trigger(book: Book, case: Case, rejection: Rejection | None) -> Event | None:
    """The event of *book* that led to the command, if it is the one that it names."""
    if not 0 <= case.source_sequence < len(book.events):
        return None
    found = book.events[case.source_sequence]
    return found if rejection and rejection.command.event.causation_id == found.id else None


_NAMES: Final = (
    "id", "status", "saga", "source", "source_sequence", "command_id", "command_type", "target",
    "reason", "answer", "correlation_id", "rejected_at", "changed_at", "first_event",
    "event_count", "steps", "asked_again", "asked_by", "note",
)  # fmt: skip


def case_json(case: Case) -> dict[str, Any]:
    """*case* as a JSON object."""
    said = {name: getattr(case, name) for name in _NAMES}
    return said | {"source": case.source._asdict(), "target": case.target._asdict()}


def page_json(page: Page) -> dict[str, Any]:
    """*page* as a JSON object; `next` is the cursor of the next page, or null."""
    return {"cases": [case_json(case) for case in page.cases], "next": page.next or None}


def story_json(story: Story, data: HideData | None) -> dict[str, Any]:
    """*story* as a JSON object; *data*: with what that returns of each event."""
    command = story.rejection.command.event if story.rejection else None
    return case_json(story.case) | {
        "trigger": story.trigger and _event(story.trigger, data),
        "command": command and _event(command, data),
        "compensation": [_event(event, data) for event in story.compensation],
        "escalation_id": story.escalation or None,
        "failure_id": story.failure or None,
    }


def _event(event: Event, data: HideData | None) -> Mapping[str, Any]:
    said = {
        "id": event.id,
        "type": event.type,
        "domain": event.domain,
        "root": event.root,
        "edition": event.edition,
        "sequence": event.sequence,
        "occurred_at": event.occurred_at,
    }
    return said if data is None else said | {"data": data(event)}


class ChainLink(NamedTuple):
    """A link of the chain."""

    step: str
    what: str
    where: str = ""
    id: str = ""
    at: datetime | None = None
    event: Event | None = None


def links_of(story: Story, fallback_domain: str) -> list[ChainLink]:
    """The events in order; `SagaCompensationFailed` is an event of *fallback_domain*."""
    case = story.case
    command = story.rejection.command.event if story.rejection else None
    return [
        _links_trigger(story),
        ChainLink("command", case.command_type, str(case.target), case.command_id, None, command),
        ChainLink("rejected", case.reason, str(case.target), case.id, case.rejected_at),
        _answer(case),
        *(_of_event("compensation", event) for event in story.compensation),
        *_besides(story, fallback_domain),
    ]


def _links_trigger(story: Story) -> ChainLink:
    if story.trigger is not None:
        return _of_event("event", story.trigger)
    return ChainLink("event", f"number {story.case.source_sequence}, in no book of the source")


def _of_event(step: str, event: Event) -> ChainLink:
    edition = f" ({event.edition})" if event.edition else ""
    where = f"{event.domain}/{event.root}{edition} #{event.sequence}"
    return ChainLink(step, event.type, where, event.id, event.occurred_at, event)


def _answer(case: Case) -> ChainLink:
    if case.status is RejectionStatus.TOLD:
        return ChainLink("answer", "none yet", str(case.source))
    what = f"{case.status}: {case.answer}" if case.answer else str(case.status)
    return ChainLink("answer", what, str(case.source), "", case.changed_at)


def _besides(story: Story, fallback_domain: str) -> Iterator[ChainLink]:
    """Yield what was done besides; letters are found by their events."""
    for step in story.case.steps:
        match step:
            case CompensationStep.DEAD_LETTER:
                yield ChainLink("then", "a dead letter")
            case CompensationStep.ESCALATE:
                yield ChainLink("then", "an escalation", "", story.escalation)
            case CompensationStep.ABORT:
                yield ChainLink("then", "an abort: a dead letter")
            case CompensationStep.REVOKE:
                yield ChainLink("then", "SagaCompensationFailed", fallback_domain, story.failure)
