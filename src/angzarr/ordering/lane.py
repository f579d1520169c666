"""Lane: how far a handler has come with one aggregate, and what waits there; port Lanes (spec P3).

A lane is at `next_sequence`: what is before it was handled or skipped. An event that comes early is
parked in the lane, and so is whatever comes after a dead letter; whoever moves the lane on hands
out what was parked for its next place. No lane waits for another one.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, TypeAlias

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
    #: The message of an EARLY one, as `schedule_row` writes it.
    text: str | None = None
    #: The letter of a DEAD_LETTER.
    letter_id: str | None = None
    #: When a RETRYING one comes again.
    due_at: datetime | None = None


def replaces(noted: Waiting, there: Waiting | None, *, claimed: bool) -> bool:
    """Tell whether what is *noted* takes the place of what is *there*; see `Lanes.note`."""
    if there is None or not claimed:
        return there is None
    return there.why is not Why.EARLY or there.event_id == noted.event_id


class Place(NamedTuple):
    """Where a lane is."""

    next_sequence: int
    #: How many events wait in it, of whatever kind.
    waiting: int = 0


class Parked(NamedTuple):
    """It is kept. `behind` is what waits at the lane's next place, if the lane knows of it."""

    behind: Waiting | None


class Ready(NamedTuple):
    """It need not be parked: the lane is at its place, or past it."""

    next_sequence: int


class Full(NamedTuple):
    """Nothing is kept: as many are parked in the lane as may be."""

    parked: int


class Taken(NamedTuple):
    """Nothing is kept: another event, with the id `event_id`, is parked at the same place."""

    event_id: str


ParkAnswer: TypeAlias = Parked | Ready | Full | Taken


class Moved(NamedTuple):
    """The lane is past the step. `successor` is what is parked for its next place, if any."""

    successor: Waiting | None


class Elsewhere(NamedTuple):
    """The lane was not at the step's place; nothing was written."""

    next_sequence: int


class Entered(Protocol):
    """A lane that was looked at by who may be about to run its next event; used by one thread.

    Somewhere it is a transaction that has begun: leave it soon, by `run` or by `close`.
    """

    #: Where the lane was.
    place: Place

    @abstractmethod
    def run(self, step: Step, work: Callable[[Any], object], /) -> Moved | Elsewhere:
        """Do what `Lanes.run` does, once."""

    @abstractmethod
    def close(self) -> None:
        """Leave it with nothing written; nothing, once it is left."""


class Gap(NamedTuple):
    """A lane in which events wait for one that nobody knows of."""

    lane: Lane
    #: The place that is missing, and the first event that waits behind it.
    missing: int
    first_waiting: Waiting
    waiting: int


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


class Lanes(Protocol):
    """Where lanes are kept. All verbs raise StoreUnavailable. Safe to use from threads."""

    @abstractmethod
    def look(self, lane: Lane, /) -> Place:
        """Return where *lane* is; one that nobody moved is at its first place."""

    @abstractmethod
    def move(self, step: Step, /) -> Moved | Elsewhere:
        """Move a lane past *step* and count it in the handler's checkpoint, all or nothing.

        Safe to repeat: a lane that is just past the step was moved by an earlier call, and is not
        moved or counted again. Whatever the lane knew of the step's event is forgotten.
        """

    @abstractmethod
    def run(self, step: Step, work: Callable[[Any], object], /) -> Moved | Elsewhere:
        """Run *work* and move past *step* in one transaction: both happened, or neither.

        *work* is given what writes in it (SQL: a SQLAlchemy Connection; in memory: None). What it
        raises goes through, and nothing was written. A repeat finds the lane Elsewhere.
        Raises StoreUnavailable, too, while nobody is let in: see `enter`.
        """

    @abstractmethod
    def enter(self, lane: Lane, /) -> Entered | None:
        """Look at *lane* where a run of its next event follows; None while nobody is let in.

        Nobody is while the read model is being replaced. Close what is returned.
        """

    @abstractmethod
    def transaction(self) -> AbstractContextManager[Any]:
        """Give what writes, as `run` does, in a transaction that moves no lane.

        It is committed when the block ends, and undone by what the block raises.
        """

    @abstractmethod
    def park(self, early: Waiting, most: int, /) -> ParkAnswer:
        """Keep an EARLY event, unless the lane has come to its place meanwhile or *most* are kept.

        Whoever moves the lane to that place sees what is kept here. An event that is parked already
        is replaced, and counts once; another event at its place is not.
        """

    @abstractmethod
    def note(self, waiting: Waiting, /, *, claimed: bool = True) -> None:
        """Keep that an event is RETRYING or a DEAD_LETTER; nothing, if the lane is past it.

        It replaces what the lane knew of that place, but for another EARLY event, whose message is
        nowhere else. Without a claim it counts only where nothing was known. Safe to repeat.
        """

    @abstractmethod
    def released(self, early: Waiting, /) -> None:
        """Forget an EARLY event whose message is on its way again; safe to repeat."""

    @abstractmethod
    def due(
        self, handlers: Sequence[str], now: datetime, lease: timedelta, limit: int, /
    ) -> Sequence[Waiting]:
        """Lend EARLY events whose place their lanes have come to or passed, of *handlers*.

        That is what a process left that died between a move and `released`. Others are lent none of
        them for *lease*.
        """

    @abstractmethod
    def recall(self, handlers: Sequence[str], limit: int, /) -> int:
        """Let `due` find EARLY events that were passed by; return in how many lanes. Ask seldom."""

    @abstractmethod
    def gaps(self, handlers: Sequence[str], before: datetime, limit: int, /) -> Sequence[Gap]:
        """Return lanes whose next event nobody knows of, and in which some wait since *before*.

        A lane that was moved since *before* is none of them: what comes next is on its way. A
        RETRYING event that should have come by then is one nobody knows of. Oldest first.
        """

    @abstractmethod
    def on_duty(self, keeper: str, span: timedelta, /, *, of: Sequence[str] = ()) -> bool:
        """Tell whether *keeper* looks after the lanes *of* these handlers for the next *span*.

        One does at a time; whoever is on duty stays so by asking again.
        """

    @abstractmethod
    def places(self, handler: str, addresses: Sequence[Address], /) -> Mapping[Address, int]:
        """Return the next sequences of the lanes at *addresses*; those nobody moved are left out.

        At most a thousand addresses.
        """

    @abstractmethod
    def summaries(self, handlers: Sequence[str], /) -> Sequence[Summary]:
        """Return a summary for each of *handlers*, in their order."""

    @abstractmethod
    def waiting(
        self, handler: str, /, *, address: Address | None = None, limit: int = 100
    ) -> Sequence[Waiting]:
        """Return what waits in the lanes of *handler*, or in the one at *address*, in order."""

    @abstractmethod
    def standing(
        self, handler: str, /, *, limit: int, after: Address | None = None, blocked: bool = False
    ) -> Sequence[Standing]:
        """Return lanes of *handler* in which something waits, by address; those behind *after*.

        *blocked*: only those that a dead letter holds up.
        """

    @abstractmethod
    def known(self) -> Sequence[Known]:
        """Return the handlers that have lanes, by name; reads a row for each, and each domain.

        One is left out whose name has more than 120 characters.
        """

    @abstractmethod
    def behind(self, letter_ids: Sequence[str], /) -> Mapping[str, int]:
        """Return how many events are parked in the lane that each dead letter holds up.

        A letter that holds up none, also one whose turn has not come, is left out.
        """

    @abstractmethod
    def skip_to(self, lane: Lane, sequence: int, /) -> Place:
        """Move *lane* on to *sequence*, whatever is missing before it; never back.

        What is parked before that is found by `due`, and is then seen to be past.
        """

    @abstractmethod
    def reset(self, handler: str, work: Callable[[Any], object] | None = None, /) -> int:
        """Let all lanes of *handler* begin anew and clear its checkpoint; return how many it had.

        *work* is run in the same transaction, as by `run`. What is parked stays parked: no message
        is lost.
        """

    @abstractmethod
    def close(self) -> None:
        """Let connections go; safe to call twice."""
