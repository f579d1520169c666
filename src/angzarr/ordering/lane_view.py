"""Lane views: lanes in which something waits, and why, for people and for metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

from angzarr.aggregates.book import Address
from angzarr.ordering.lane import Gap, Lane, Standing, Summary, Waiting, Why
from angzarr.ordering.lanes import Lanes


class LaneState(StrEnum):
    """What a lane waits for."""

    BLOCKED = "blocked"  # a dead letter
    GAP = "gap"  # an unknown event
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
    def state(self) -> LaneState:
        """What it waits for."""
        if self.head is None:
            return LaneState.GAP if self.first_behind else LaneState.EMPTY
        states = {
            Why.DEAD_LETTER: LaneState.BLOCKED,
            Why.RETRYING: LaneState.RETRYING,
            Why.EARLY: LaneState.READY,
        }
        return states[self.head.why]


def views(waiting: Iterable[Waiting], places: Mapping[Address, int], first: int) -> list[LaneView]:
    """The lanes of *waiting*, which is in order; *first*: where the unmoved ones are."""
    return [
        LaneView(address=address, next_sequence=places.get(address, first), waiting=tuple(of_lane))
        for address, of_lane in groupby(waiting, lambda one: one.lane.address)
    ]


def view_of(standing: Standing) -> LaneView:
    """A lane of which only what waits first is known."""
    waiting = () if standing.first is None else (standing.first,)
    return LaneView(
        address=standing.lane.address, next_sequence=standing.next_sequence, waiting=waiting
    )


def lane_at(lanes: Lanes, lane: Lane, limit: int) -> LaneView:
    """*lane*, with at most *limit* of what waits in it; raises StoreUnavailable."""
    waiting = lanes.waiting(lane.handler, address=lane.address, limit=limit)
    place = lanes.places(lane.handler, [lane.address]).get(lane.address, lane.first)
    return LaneView(address=lane.address, next_sequence=place, waiting=tuple(waiting))


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderingSample:
    """How much of a handler's work waits, and in how many of its lanes."""

    #: Its task name.
    handler: str
    #: Events that are parked behind others.
    parked: int
    #: Lanes that a dead letter holds up, and those whose next event is unknown.
    blocked: int
    gaps: int
    #: Events that it has not passed; None: they were not counted.
    events_behind: int | None = None


def samples_of(
    summaries: Iterable[Summary], gaps: Iterable[Gap], behind: Mapping[str, int] | None = None
) -> list[OrderingSample]:
    """A sample for each of *summaries*; *behind*: events that handlers have not passed."""
    missing = Counter(gap.lane.handler for gap in gaps)
    return [
        OrderingSample(
            handler=one.handler,
            parked=one.parked,
            blocked=one.blocked,
            gaps=missing[one.handler],
            events_behind=(behind or {}).get(one.handler),
        )
        for one in summaries
    ]
