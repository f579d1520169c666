"""Lane: how far a handler has come with one aggregate, and what waits there (spec P3).

A lane is at `next_sequence`: what is before it was handled or skipped. An event that comes early is
parked in the lane, and so is whatever comes after a dead letter; whoever moves the lane on hands
out what was parked for its next place. No lane waits for another one.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from angzarr.aggregates.book import Address


class Lane(NamedTuple):
    """The events of one aggregate on their way through one handler."""

    #: Its task name.
    handler: str
    address: Address
    #: The sequence with which aggregates begin, as this handler was registered.
    first: int = 0


class Step(NamedTuple):
    """One event of a lane, and when it was handled or skipped."""

    lane: Lane
    sequence: int
    event_id: str
    event_type: str
    occurred_at: datetime | None
    at: datetime


class Why(StrEnum):
    """Why an event waits that a lane knows of."""

    EARLY = "early"  # its message is parked in the lane
    RETRYING = "retrying"  # its copy waits for its time elsewhere
    DEAD_LETTER = "dead_letter"  # somebody must replay or skip it


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """An event that its lane knows of and has not passed."""

    lane: Lane
    sequence: int
    why: Why
    since: datetime
    event_id: str
    event_type: str
    #: The message of an EARLY or RETRYING one, as `schedule_row` writes it.
    text: str | None = None
    #: The letter of a DEAD_LETTER.
    letter_id: str | None = None
    #: When a RETRYING one comes again.
    due_at: datetime | None = None


def replaces(noted: Waiting, there: Waiting | None, *, claimed: bool) -> bool:
    """Tell whether what is *noted* takes the place of what is *there*; see `Lanes.note`."""
    if there is None:
        return True
    same = there.event_id == noted.event_id
    if claimed:
        return there.why is not Why.EARLY or same
    # Only how long it waits is news of who has no claim: a letter or a message stays.
    return same and noted.why is there.why is Why.RETRYING and _later(noted, there)


def _later(one: Waiting, other: Waiting) -> bool:
    return one.due_at is not None and (other.due_at is None or one.due_at > other.due_at)


class Place(NamedTuple):
    """Where a lane is."""

    next_sequence: int
    #: How many events wait in it, of whatever kind.
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class ParkedInLane:
    """It is kept."""


class Ready(NamedTuple):
    """It need not be parked: the lane is at its place, or past it."""

    next_sequence: int


class Full(NamedTuple):
    """Nothing is kept: as many are parked in the lane as may be."""

    parked: int


class Taken(NamedTuple):
    """Nothing is kept: another event, with the id `event_id`, is parked at the same place."""

    event_id: str


ParkAnswer: TypeAlias = ParkedInLane | Ready | Full | Taken


class Moved(NamedTuple):
    """The lane is past the step. `successor` is what is parked for its next place, if any."""

    successor: Waiting | None


class Elsewhere(NamedTuple):
    """The lane was not at the step's place; nothing was written."""

    next_sequence: int


class Gap(NamedTuple):
    """A lane in which events wait for one that nobody knows of."""

    lane: Lane
    #: The place that is missing, and the first event that waits behind it.
    missing: int
    first_waiting: Waiting
    waiting: int
    #: What is missing, where it is a RETRYING event whose copy is overdue.
    overdue: Waiting | None = None
    #: How often it was sent again, and until when nobody sends it once more.
    sent: int = 0
    sent_until: datetime | None = None


class Summary(NamedTuple):
    """The lanes of one handler together."""

    handler: str
    lanes: int
    #: Events that are parked, and lanes that a dead letter holds up.
    parked: int
    blocked: int
    #: Since when the event waits that waits longest; None: none does.
    oldest: datetime | None


class Standing(NamedTuple):
    """A lane in which something waits."""

    lane: Lane
    next_sequence: int
    waiting: int
    #: What waits first at its place or behind it, without its message; None: all of it is past.
    first: Waiting | None


class Known(NamedTuple):
    """Of a handler that has lanes, what they tell: other domains may be its own, too."""

    handler: str
    domains: frozenset[str]
    #: The sequence with which aggregates begin, by one of its lanes.
    first: int
