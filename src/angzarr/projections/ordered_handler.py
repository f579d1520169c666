"""Ordered handlers as people and programs see them: rows, JSON, and the commands that help a lane.

A command is text for a shell: what came from outside is quoted.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from angzarr.aggregates.book import Address, Pending
from angzarr.ordering.lane import Lane, Order, Standing, Summary, Waiting
from angzarr.ordering.lane_view import LaneState, LaneView, view_of
from angzarr.ordering.lanes import Lanes
from angzarr.projections.checkpoint import Checkpoint, Checkpoints, Lag
from angzarr.projections.projection import handler_name
from angzarr.runtime.text import printable

#: With what the task name of a projection begins.
_PROJECTION: Final = handler_name("")


class OrderedHandler(NamedTuple):
    """A projection, or another handler that takes events in order."""

    task: str
    order: Order

    @property
    def name(self) -> str:
        """The name of the projection, or the task name of the handler."""
        named = self.order.moves and self.task.startswith(_PROJECTION)
        return self.task.removeprefix(_PROJECTION) if named else self.task

    @property
    def kind(self) -> str:
        """`projection`, or `handler`."""
        return "projection" if self.order.moves else "handler"

    def lane(self, address: Address) -> Lane:
        """The lane of the aggregate at *address*."""
        return Lane(self.task, address, self.order.first)


def row_json(row: HandlerRow) -> dict[str, Any]:
    """An ordered handler, and how it does."""
    one, summary, checkpoint, lag = row
    return {
        "name": one.name,
        "kind": one.kind,
        "task": one.task,
        "domains": sorted(one.order.domains),
        "event_types": sorted(one.order.types),
        "first_sequence": one.order.first,
        "checkpoint": checkpoint and checkpoint_json(checkpoint),
        **summary_json(summary),
        **({} if lag is None else {"lag": lag_json(lag)}),
    }


def summary_json(summary: Summary) -> dict[str, Any]:
    """The lanes of a handler together."""
    return {
        "lanes": summary.lanes,
        "parked": summary.parked,
        "blocked": summary.blocked,
        "waits_since": _moment(summary.oldest),
    }


def checkpoint_json(checkpoint: Checkpoint) -> dict[str, Any]:
    """A checkpoint."""
    return {
        "last_event_id": checkpoint.last_event_id,
        "last_event_type": checkpoint.last_event_type,
        "last_processed_at": checkpoint.last_processed_at.isoformat(),
        "events_processed": checkpoint.events_processed,
    }


def lag_json(lag: Lag) -> dict[str, Any]:
    """How far a handler is behind; `without_books`: domains of which nothing is counted."""
    behind = lag.time_behind
    return {
        "at": lag.at.isoformat(),
        "events_behind": lag.events_behind,
        "seconds_behind": None if behind is None else behind.total_seconds(),
        "aggregates_behind": lag.lanes_behind,
        "by_type": pending_json(lag.by_type),
        "without_books": sorted(lag.without_books),
    }


def pending_json(pending: Iterable[Pending]) -> dict[str, Any]:
    """Events that were counted, by type."""
    return {kind: {"events": events, "oldest": _moment(oldest)} for kind, events, oldest in pending}


def story_json(
    row: HandlerRow, by_type: Mapping[str, Checkpoint], lanes: Sequence[LaneView], *, more: bool
) -> dict[str, Any]:
    """All about a handler, with what waits in its lanes; *more* waits in others."""
    return {
        **row_json(row),
        "by_type": {kind: checkpoint_json(last) for kind, last in sorted(by_type.items())},
        "waiting_lanes": [lane_json(row.one, view) for view in lanes],
        "more": more,
    }


def lane_json(
    one: OrderedHandler, view: LaneView, pending: Iterable[Pending] = ()
) -> dict[str, Any]:
    """A lane, what waits in it in order, what its book has more, and what helps."""
    return {
        **view.address._asdict(),
        "next_sequence": view.next_sequence,
        "state": view.state.value,
        "waiting": [waiting_json(waiting) for waiting in view.waiting],
        "in_book": pending_json(pending),
        "what_helps": what_helps(one, view),
    }


def standing_json(one: OrderedHandler, standing: Standing) -> dict[str, Any]:
    """A lane in which something waits: how much, what first, and what helps."""
    view = view_of(standing)
    return {
        **view.address._asdict(),
        "next_sequence": view.next_sequence,
        "state": view.state.value,
        "waiting": standing.waiting,
        "first": standing.first and waiting_json(standing.first),
        "what_helps": what_helps(one, view),
    }


def waiting_json(waiting: Waiting) -> dict[str, Any]:
    """An event that waits."""
    return {
        "sequence": waiting.sequence,
        "why": waiting.why.value,
        "event_id": waiting.event_id,
        "event_type": waiting.event_type,
        "since": waiting.since.isoformat(),
        "due_at": _moment(waiting.due_at),
        "letter_id": waiting.letter_id,
    }


def _moment(at: datetime | None) -> str | None:
    return at.isoformat() if at else None


class HandlerRow(NamedTuple):
    """An ordered handler and how it does."""

    one: OrderedHandler
    summary: Summary
    checkpoint: Checkpoint | None
    #: None: it was not asked for.
    lag: Lag | None = None


def row_of(
    one: OrderedHandler, lanes: Lanes, checkpoints: Checkpoints, lag: Lag | None = None
) -> HandlerRow:
    """How *one* does; counts its lanes. Raises StoreUnavailable."""
    (summary,) = lanes.summaries([one.task])
    return HandlerRow(one, summary, checkpoints.get(one.task), lag)


def what_helps(one: OrderedHandler, view: LaneView) -> list[str]:
    """The commands, or what else, that move a lane on."""
    if view.head is not None and view.state is LaneState.BLOCKED:
        return list(of_letter(one, view.head))
    if view.state is LaneState.GAP:
        place = shlex.quote(printable(str(view.address)))
        return [f"angzarr projection skip {shlex.quote(one.name)} {place} --gap"]
    return []


def of_letter(one: OrderedHandler, letter: Waiting) -> tuple[str, str]:
    """The commands that replay and that skip a dead letter."""
    event_id = shlex.quote(printable(letter.event_id))
    which = f"--event {event_id} --handler {shlex.quote(one.task)}"
    return f"angzarr dlq replay {which}", f"angzarr dlq skip {which}"
