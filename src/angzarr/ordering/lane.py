"""Lane: the events of one aggregate on their way through one ordered handler (spec D8, P3).

An `Order` says which events a handler takes in order. A lane is at `next_sequence`: what is before
it was handled or skipped. An event that comes early is parked in its lane, and so is what comes
after a dead letter. The delivery that moves the lane publishes what was parked for its next place.
No lane waits for another one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from angzarr.aggregates.book import Address, check_address
from angzarr.errors import ConfigurationError, DecodeError, InvalidDomainName, InvalidRoot
from angzarr.events.event import Event


class Lane(NamedTuple):
    """The events of one aggregate on their way through one handler."""

    #: Its task name.
    handler: str
    address: Address
    #: The sequence with which aggregates begin, as this handler was registered.
    first: int = 0


class SkipCause(NamedTuple):
    """Why an event was skipped, and the id of the switch that dropped it, if that is why."""

    reason: str
    switch: str | None = None


class Step(NamedTuple):
    """One event of a lane, and when it was handled or skipped."""

    lane: Lane
    sequence: int
    event_id: str
    event_type: str
    occurred_at: datetime | None
    at: datetime
    #: Names the delivery; empty: none, and how the step ended is not kept.
    token: str = ""
    #: None: it was handled.
    skipped: SkipCause | None = None


class StepEnd(NamedTuple):
    """How the delivery ended that moved a lane past a step: its token, when, and why skipped."""

    token: str
    at: datetime
    skipped: SkipCause | None = None


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
    #: The message of an EARLY or RETRYING one, as `schedule.row_of` writes it.
    text: str | None = None
    #: The letter of a DEAD_LETTER.
    letter_id: str | None = None
    #: When a RETRYING one comes again.
    due_at: datetime | None = None


def replaces(noted: Waiting, there: Waiting | None, *, claimed: bool) -> bool:
    """True if what is *noted* takes the place of what is *there*; see `Lanes.note`."""
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
    """A lane in which events wait for one that is unknown."""

    lane: Lane
    #: The place that is missing, and the first event that waits behind it.
    missing: int
    first_waiting: Waiting
    waiting: int
    #: What is missing, where it is a RETRYING event whose copy is overdue.
    overdue: Waiting | None = None
    #: How often it was sent again, and until when it is not sent once more.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """An ordered handler is sent every event of its domains and takes those of `types`.

    The others only move its lanes.
    """

    domains: frozenset[str]
    types: frozenset[str]
    #: The sequence with which aggregates begin.
    first: int = 0
    #: Whether a run of the handler moves its lane itself, in the transaction of its effects.
    moves: bool = False


def order_by(by: str | None, domain: str | None, event_type: str, first: int) -> Order | None:
    """The order that a handler of *event_type* asks for; None: it asks for none.

    Raises ConfigurationError for what cannot be kept in order.
    """
    check_first(first)
    problem = _problem(by, domain, first)
    if problem:
        raise ConfigurationError(problem)
    if by is None or domain is None:
        return None
    return Order(domains=frozenset({domain}), types=frozenset({event_type}), first=first)


def check_first(sequence: object) -> None:
    """Raise ConfigurationError unless aggregates can begin with *sequence*."""
    if isinstance(sequence, bool) or not isinstance(sequence, int) or sequence < 0:
        msg = (
            "first_sequence must be a whole number from 0, the sequence with which aggregates"
            f" begin; got {sequence!r:.50}"
        )
        raise ConfigurationError(msg)


def refuse_order(options: Iterable[str]) -> None:
    """Refuse the names of *options* that only `handler` takes; raises ConfigurationError."""
    if not {"ordered_by", "first_sequence"}.isdisjoint(options):
        msg = "only events have an order: pass ordered_by and first_sequence to @app.handler"
        raise ConfigurationError(msg)


def _problem(by: str | None, domain: str | None, first: int) -> str:
    if by is None:
        why = 'first_sequence is for handlers that take events in order: pass ordered_by="root"'
        return f"{why} too, or leave it out" if first else ""
    if by != "root":
        return f'ordered_by must be "root"; got {by!r:.50}'
    if domain is None:
        return (
            'ordered_by="root" needs the domain of the aggregates: pass domain="order", the domain'
            " of their events"
        )
    return ""


def lane_of(event: Event, handler: str, order: Order) -> Lane:
    """The lane of *event*; raises DecodeError for one that has no place in any."""
    if event.domain is None or event.root is None or event.sequence is None:
        msg = (
            f"{handler} takes the events of an aggregate in order, and this one says no"
            f" {_missing(event)}: publish it with domain, root and sequence"
        )
        raise DecodeError(msg)
    if event.domain not in order.domains:
        listed = ", ".join(sorted(order.domains))
        msg = f"{handler} takes the events of {listed}, and this one is of {event.domain!r:.80}"
        raise DecodeError(msg)
    if event.sequence < order.first:
        msg = (
            f"the sequence {event.sequence} is before {order.first}, with which aggregates begin"
            f" for {handler}: register it with the first_sequence that its publishers use"
        )
        raise DecodeError(msg)
    try:
        address = check_address(Address(event.domain, event.root, event.edition or ""))
    except (InvalidDomainName, InvalidRoot) as error:
        raise DecodeError(str(error)) from error
    return Lane(handler, address, order.first)


def _missing(event: Event) -> str:
    return " and no ".join(
        name for name in ("domain", "root", "sequence") if getattr(event, name) is None
    )
