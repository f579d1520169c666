"""Cases of rejected commands as JSON, for programs. Names do not change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from angzarr.events.event import Event
from angzarr.sagas.hiding import HideData
from angzarr.sagas.log import Case
from angzarr.sagas.pages import Page
from angzarr.sagas.story import Story

_NAMES: Final = (
    "id", "status", "saga", "source", "source_sequence", "command_id", "command_type", "target",
    "reason", "answer", "correlation_id", "rejected_at", "changed_at", "first_event",
    "event_count", "steps", "asked_again", "asked_by", "note",
)  # fmt: skip


def case_json(case: Case) -> dict[str, Any]:
    """Return *case* as a JSON object."""
    said = {name: getattr(case, name) for name in _NAMES}
    return said | {"source": case.source._asdict(), "target": case.target._asdict()}


def page_json(page: Page) -> dict[str, Any]:
    """Return *page* as a JSON object; `next` is the cursor of the next page, or null."""
    return {"cases": [case_json(case) for case in page.cases], "next": page.next or None}


def story_json(story: Story, data: HideData | None) -> dict[str, Any]:
    """Return *story* as a JSON object; *data*: with what that returns of each event."""
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
