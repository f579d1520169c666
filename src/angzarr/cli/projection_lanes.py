"""Lanes in which something waits: why, and what helps."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

from angzarr.aggregates.book import Address
from angzarr.cli.projection_choice import Ordered, place_text
from angzarr.ordering.lane import Lanes, Waiting, Why
from angzarr.printable import printable


class State(StrEnum):
    """What a lane waits for."""

    BLOCKED = "blocked"  # a dead letter
    GAP = "gap"  # an event that nobody knows of
    RETRYING = "retrying"
    READY = "ready"  # nothing: what is parked for its place is handed out by a worker
    EMPTY = "empty"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneView:
    """A lane, and what waits in it, in order."""

    address: Address
    next_sequence: int
    waiting: tuple[Waiting, ...] = ()

    @property
    def head(self) -> Waiting | None:
        """What waits at the lane's place, if the lane knows of it."""
        at_place = (one for one in self.waiting if one.sequence == self.next_sequence)
        return next(at_place, None)

    @property
    def first_behind(self) -> Waiting | None:
        """What waits first behind the lane's place."""
        return next((one for one in self.waiting if one.sequence > self.next_sequence), None)

    @property
    def state(self) -> State:
        """What it waits for."""
        if self.head is None:
            return State.GAP if self.first_behind else State.EMPTY
        states = {
            Why.DEAD_LETTER: State.BLOCKED,
            Why.RETRYING: State.RETRYING,
            Why.EARLY: State.READY,
        }
        return states[self.head.why]


def views(waiting: Iterable[Waiting], places: Mapping[Address, int], first: int) -> list[LaneView]:
    """Return the lanes of *waiting*, which is in order; *first*: where the unmoved ones are."""
    return [
        LaneView(address=address, next_sequence=places.get(address, first), waiting=tuple(of_lane))
        for address, of_lane in groupby(waiting, lambda one: one.lane.address)
    ]


def lane_at(lanes: Lanes, one: Ordered, address: Address, limit: int) -> LaneView:
    """Return the lane of *one* at *address*, with at most *limit* of what waits in it."""
    handler = one.handler.name
    waiting = lanes.waiting(handler, address=address, limit=limit)
    place = lanes.places(handler, [address]).get(address, one.order.first)
    return LaneView(address=address, next_sequence=place, waiting=tuple(waiting))


def what_helps(one: Ordered, view: LaneView) -> list[str]:
    """Return the commands, or what else, that move a lane on."""
    if view.head is not None and view.state is State.BLOCKED:
        return list(of_letter(one, view.head))
    if view.state is State.GAP:
        place = shlex.quote(printable(place_text(view.address)))
        return [f"angzarr projection skip {shlex.quote(one.name)} {place} --gap"]
    return []


def of_letter(one: Ordered, letter: Waiting) -> tuple[str, str]:
    """Return the commands that replay and that skip a dead letter."""
    event_id = shlex.quote(printable(letter.event_id))
    which = f"--event {event_id} --handler {shlex.quote(one.handler.name)}"
    return f"angzarr dlq replay {which}", f"angzarr dlq skip {which}"
