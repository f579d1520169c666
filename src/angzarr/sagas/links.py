"""Links: what is known of a rejected command as a chain, one line after the other, for people."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from angzarr.events.event import Event
from angzarr.sagas.flags import Step
from angzarr.sagas.log import Case, Status
from angzarr.sagas.story import Story


class Link(NamedTuple):
    """A link of the chain."""

    step: str
    what: str
    where: str = ""
    id: str = ""
    at: datetime | None = None
    event: Event | None = None


def links_of(story: Story, fallback_domain: str) -> list[Link]:
    """Return what happened, in order; `SagaCompensationFailed` is an event of *fallback_domain*."""
    case = story.case
    command = story.rejection.command.event if story.rejection else None
    return [
        _trigger(story),
        Link("command", case.command_type, str(case.target), case.command_id, None, command),
        Link("rejected", case.reason, str(case.target), case.id, case.rejected_at),
        _answer(case),
        *(_of_event("compensation", event) for event in story.compensation),
        *_besides(story, fallback_domain),
    ]


def _trigger(story: Story) -> Link:
    if story.trigger is not None:
        return _of_event("event", story.trigger)
    return Link("event", f"number {story.case.source_sequence}, in no book of the source")


def _of_event(step: str, event: Event) -> Link:
    edition = f" ({event.edition})" if event.edition else ""
    where = f"{event.domain}/{event.root}{edition} #{event.sequence}"
    return Link(step, event.type, where, event.id, event.occurred_at, event)


def _answer(case: Case) -> Link:
    if case.status is Status.TOLD:
        return Link("answer", "none yet", str(case.source))
    what = f"{case.status}: {case.answer}" if case.answer else str(case.status)
    return Link("answer", what, str(case.source), "", case.changed_at)


def _besides(story: Story, fallback_domain: str) -> Iterator[Link]:
    """Yield what was done besides; letters are found by their events."""
    for step in story.case.steps:
        match step:
            case Step.DEAD_LETTER:
                yield Link("then", "a dead letter")
            case Step.ESCALATE:
                yield Link("then", "an escalation", "", story.escalation)
            case Step.ABORT:
                yield Link("then", "an abort: a dead letter")
            case Step.REVOKE:
                yield Link("then", "SagaCompensationFailed", fallback_domain, story.failure)
