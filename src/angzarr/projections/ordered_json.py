"""Ordered handlers as JSON, for programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from angzarr.aggregates.event_store import Pending
from angzarr.ordering.lane import Standing, Summary, Waiting
from angzarr.ordering.lane_view import LaneView, view_of
from angzarr.projections.checkpoint import Checkpoint
from angzarr.projections.helping import what_helps
from angzarr.projections.lag import Lag
from angzarr.projections.ordered_handler import Ordered
from angzarr.projections.row import Row


def row_json(row: Row) -> dict[str, Any]:
    """Return an ordered handler, and how it does."""
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
    """Return the lanes of a handler together."""
    return {
        "lanes": summary.lanes,
        "parked": summary.parked,
        "blocked": summary.blocked,
        "waits_since": _moment(summary.oldest),
    }


def checkpoint_json(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return a checkpoint."""
    return {
        "last_event_id": checkpoint.last_event_id,
        "last_event_type": checkpoint.last_event_type,
        "last_processed_at": checkpoint.last_processed_at.isoformat(),
        "events_processed": checkpoint.events_processed,
    }


def lag_json(lag: Lag) -> dict[str, Any]:
    """Return how far a handler is behind; `without_books`: domains of which nothing is counted."""
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
    """Return events that were counted, by type."""
    return {kind: {"events": events, "oldest": _moment(oldest)} for kind, events, oldest in pending}


def story_json(
    row: Row, by_type: Mapping[str, Checkpoint], lanes: Sequence[LaneView], *, more: bool
) -> dict[str, Any]:
    """Return all about a handler, with what waits in its lanes; *more* waits in others."""
    return {
        **row_json(row),
        "by_type": {kind: checkpoint_json(last) for kind, last in sorted(by_type.items())},
        "waiting_lanes": [lane_json(row.one, view) for view in lanes],
        "more": more,
    }


def lane_json(one: Ordered, view: LaneView, pending: Iterable[Pending] = ()) -> dict[str, Any]:
    """Return a lane, what waits in it in order, what its book has more, and what helps."""
    return {
        **view.address._asdict(),
        "next_sequence": view.next_sequence,
        "state": view.state.value,
        "waiting": [waiting_json(waiting) for waiting in view.waiting],
        "in_book": pending_json(pending),
        "what_helps": what_helps(one, view),
    }


def standing_json(one: Ordered, standing: Standing) -> dict[str, Any]:
    """Return a lane in which something waits: how much, what first, and what helps."""
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
    """Return an event that waits."""
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
