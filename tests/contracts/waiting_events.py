"""Lanes, steps and events that wait, for the tests of stores of lanes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

from angzarr.aggregates.book import Address
from angzarr.ordering.lane import Lane, Step, Waiting, Why

AT = datetime(2026, 3, 1, 12, 30, 15, 123456, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
SHORT = timedelta(milliseconds=20)
MANY = 1_000


def step_of(lane: Lane, sequence: int, **fields: object) -> Step:
    given: dict[str, object] = {
        "event_id": f"e{sequence}", "event_type": "Counted", "occurred_at": AT, "at": AT,
    }  # fmt: skip
    return Step(lane=lane, sequence=sequence, **{**given, **fields})


def waiting_of(lane: Lane, sequence: int, why: Why, **fields: object) -> Waiting:
    given: dict[str, object] = {
        "since": AT, "event_id": f"e{sequence}", "event_type": "Counted",
    }  # fmt: skip
    return Waiting(lane=lane, sequence=sequence, why=why, **{**given, **fields})


def early_of(lane: Lane, sequence: int, **fields: object) -> Waiting:
    given: dict[str, object] = {"text": f"message {sequence}"}
    return waiting_of(lane, sequence, Why.EARLY, **{**given, **fields})


def retrying_of(lane: Lane, sequence: int, **fields: object) -> Waiting:
    given: dict[str, object] = {"due_at": AT + MINUTE}
    return waiting_of(lane, sequence, Why.RETRYING, **{**given, **fields})


def letter_of(lane: Lane, sequence: int, **fields: object) -> Waiting:
    given: dict[str, object] = {"letter_id": f"letter-{lane.address.root}-{sequence}"}
    return waiting_of(lane, sequence, Why.DEAD_LETTER, **{**given, **fields})


def new_lane(handler: str = "", *, first: int = 0) -> Lane:
    name = handler or f"orders.{uuid4().hex}"
    return Lane(name, Address("order", str(uuid4())), first)
