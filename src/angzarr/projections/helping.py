"""What helps a lane on: the commands that a person types. What came from outside is quoted."""

from __future__ import annotations

import shlex

from angzarr.ordering.lane import Waiting
from angzarr.ordering.lane_view import LaneView, State
from angzarr.projections.ordered_handler import Ordered
from angzarr.runtime.text import printable


def what_helps(one: Ordered, view: LaneView) -> list[str]:
    """Return the commands, or what else, that move a lane on."""
    if view.head is not None and view.state is State.BLOCKED:
        return list(of_letter(one, view.head))
    if view.state is State.GAP:
        place = shlex.quote(printable(str(view.address)))
        return [f"angzarr projection skip {shlex.quote(one.name)} {place} --gap"]
    return []


def of_letter(one: Ordered, letter: Waiting) -> tuple[str, str]:
    """Return the commands that replay and that skip a dead letter."""
    event_id = shlex.quote(printable(letter.event_id))
    which = f"--event {event_id} --handler {shlex.quote(one.task)}"
    return f"angzarr dlq replay {which}", f"angzarr dlq skip {which}"
