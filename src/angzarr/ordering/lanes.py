"""Lanes: where lanes are kept, moved and run (spec P3); a port.

A `Turn` is one delivery's use of its lane.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol

from angzarr.aggregates.book import Address
from angzarr.errors import Postpone, StoreUnavailable, text_of
from angzarr.ordering.lane import (
    Elsewhere,
    Gap,
    Known,
    Lane,
    Moved,
    ParkAnswer,
    Place,
    Standing,
    Step,
    StepEnd,
    Summary,
    Waiting,
)


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


class Lanes(Protocol):
    """Where lanes are kept. All verbs raise StoreUnavailable. Safe to use from threads."""

    @abstractmethod
    def look(self, lane: Lane, /) -> Place:
        """Where *lane* is; one that was never moved is at its first place."""

    @abstractmethod
    def move(self, step: Step, /) -> Moved | Elsewhere:
        """Move a lane past *step* and count it in the handler's checkpoint, all or nothing.

        Safe to repeat: a lane that is just past the step was moved by an earlier call, and is not
        moved or counted again. Whatever the lane knew of the step's event is forgotten. How the
        step ended is kept in the same step, for `ended`.
        """

    @abstractmethod
    def run(self, step: Step, work: Callable[[Any], object], /) -> Moved | Elsewhere:
        """Run *work* and move past *step* in one transaction: both happened, or neither.

        *work* is given what writes in it (SQL: a SQLAlchemy Connection; in memory: None). What it
        raises goes through, and nothing was written. A repeat finds the lane Elsewhere.
        Raises StoreUnavailable, too, while no run is let in: see `enter`.
        """

    @abstractmethod
    def ended(self, step: Step, since: datetime, /) -> StepEnd | None:
        """How the delivery ended that moved the lane past the event of *step*, *since* then.

        None: another event or a person moved it, it was before that, or it is forgotten.
        """

    @abstractmethod
    def forget_ends(self, before: datetime, limit: int, /) -> int:
        """Forget how steps ended well *before* that, the oldest *limit* of them; return how many.

        Some that ended up to a quarter of an hour before may stay.
        """

    @abstractmethod
    def enter(self, lane: Lane, /) -> Entered | None:
        """Look at *lane* where a run of its next event follows; None while no run is let in.

        That is so while the read model is being replaced. Close what is returned.
        """

    @abstractmethod
    def transaction(self) -> AbstractContextManager[Any]:
        """Give what writes, as `run` does, in a transaction that moves no lane.

        It is committed when the block ends, and undone by what the block raises.
        """

    @abstractmethod
    def park(self, early: Waiting, most: int, /) -> ParkAnswer:
        """Keep an EARLY event, unless the lane has come to its place meanwhile or *most* are kept.

        The move of the lane to that place sees what is kept here. An event that is parked already
        is replaced, and counts once; another event at its place is not.
        """

    @abstractmethod
    def note(self, waiting: Waiting, /, *, claimed: bool = True) -> None:
        """Keep that an event is RETRYING or a DEAD_LETTER; nothing, if the lane is past it.

        It replaces what the lane knew of that place, but for another EARLY event, whose message is
        nowhere else. Without a claim it counts where nothing was known, or that the same event is
        RETRYING for longer. Safe to repeat.
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
        """Lanes whose next event is unknown, and in which some wait since *before*.

        A lane that was moved since *before* is none of them: what comes next is on its way. A
        RETRYING event that should have come by then counts as unknown. Those come first that
        may be sent again soonest, and of these the oldest.
        """

    @abstractmethod
    def sending(self, gap: Gap, sent: int, until: datetime, /) -> bool:
        """Note that what is missing in *gap* was *sent* so often, and is not sent before *until*.

        False, and nothing is noted, where the lane moved or another noted it since *gap* was found.
        """

    @abstractmethod
    def on_duty(self, keeper: str, span: timedelta, /, *, of: Sequence[str] = ()) -> bool:
        """True if *keeper* looks after the lanes *of* these handlers for the next *span*.

        One does at a time; the one on duty stays so by asking again.
        """

    @abstractmethod
    def places(self, handler: str, addresses: Sequence[Address], /) -> Mapping[Address, int]:
        """The next sequences of the lanes at *addresses*; those never moved are left out.

        At most a thousand addresses.
        """

    @abstractmethod
    def summaries(self, handlers: Sequence[str], /) -> Sequence[Summary]:
        """A summary for each of *handlers*, in their order."""

    @abstractmethod
    def waiting(
        self, handler: str, /, *, address: Address | None = None, limit: int = 100
    ) -> Sequence[Waiting]:
        """What waits in the lanes of *handler*, or in the one at *address*, in order."""

    @abstractmethod
    def standing(
        self, handler: str, /, *, limit: int, after: Address | None = None, blocked: bool = False
    ) -> Sequence[Standing]:
        """Lanes of *handler* in which something waits, by address; those behind *after*.

        *blocked*: only those that a dead letter holds up.
        """

    @abstractmethod
    def known(self) -> Sequence[Known]:
        """The handlers that have lanes, by name; reads a row for each, and each domain.

        One is left out whose name has more than 120 characters.
        """

    @abstractmethod
    def behind(self, letter_ids: Sequence[str], /) -> Mapping[str, int]:
        """How many events are parked in the lane that each dead letter holds up.

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


@dataclass(slots=True)
class Turn:
    """One delivery's turn; used by the thread that runs it."""

    lanes: Lanes
    step: Step
    #: How the run moved the lane, where it did so itself.
    moved: Moved | None = None
    _entered: Entered | None = field(default=None, init=False)

    def look(self) -> Place:
        """Where the lane is; raises StoreUnavailable."""
        return self.lanes.look(self.step.lane)

    def ended(self, since: datetime) -> StepEnd | None:
        """How an earlier delivery of this event ended, if it moved the lane *since* then."""
        return self.lanes.ended(self.step, since)

    def enter(self) -> Place | None:
        """Where the lane is, and be ready to `run` if it is at the step: then `leave`.

        None while its read model is being replaced. Raises StoreUnavailable.
        """
        self.leave()
        entered = self.lanes.enter(self.step.lane)
        if entered is None:
            return None
        if entered.place.next_sequence == self.step.sequence:
            self._entered = entered
        else:
            entered.close()
        return entered.place

    def leave(self) -> None:
        """Leave what was entered and did not run."""
        entered, self._entered = self._entered, None
        if entered is not None:
            entered.close()

    def run(self, work: Callable[[Any], object]) -> None:
        """Do *work* and move the lane in one transaction.

        Raises what *work* does. Raises Postpone, which uses no attempt, if the database is away or
        somebody else moved the lane meanwhile: nothing was written, or it is not known, and the
        lane will tell.
        """
        entered, self._entered = self._entered, None
        run = self.lanes.run if entered is None else entered.run
        try:
            answer = run(self.step, work)
        except StoreUnavailable as away:
            raise Postpone(reason=text_of(away)) from away
        if isinstance(answer, Elsewhere):
            raise Postpone(reason="its lane was moved meanwhile")
        self.moved = answer


@dataclass(slots=True)
class Looked(Entered):
    """Runs by `Lanes.run`; there is nothing to leave."""

    place: Place
    lanes: Lanes

    def run(self, step: Step, work: Callable[[Any], object], /) -> Moved | Elsewhere:
        """Do what `Lanes.run` does."""
        return self.lanes.run(step, work)

    def close(self) -> None:
        """Do nothing."""
