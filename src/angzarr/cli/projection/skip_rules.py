"""What a skip passes, and which skips are refused. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import click

from angzarr.ordering.lane import Waiting, Why
from angzarr.ordering.lane_view import LaneState, LaneView
from angzarr.projections.ordered_handler import Ordered, of_letter


@dataclass(frozen=True, slots=True, kw_only=True)
class Passing:
    """What nobody will handle where a lane moves on to `to`."""

    view: LaneView
    to: int
    #: How many of those that are missing are in the event book, at least.
    in_book: int = 0

    @property
    def known(self) -> tuple[Waiting, ...]:
        """What waits in the lane and is passed."""
        passed = range(self.view.next_sequence, self.to)
        return tuple(one for one in self.view.waiting if one.sequence in passed)

    @property
    def missing(self) -> int:
        """How many events are passed that the lane knows nothing of."""
        return self.to - self.view.next_sequence - len(self.known)

    def __str__(self) -> str:
        first, last = self.view.next_sequence, self.to - 1
        which = f"#{first}" if first == last else f"#{first} to #{last}"
        kinds = [f"{self.missing} missing{self._in_book()}"] if self.missing else []
        kinds += [f"{one.event_type} #{one.sequence} {_waits(one)}" for one in self.known]
        return f"{which} of {self.view.address} ({', '.join(kinds)})"

    def _in_book(self) -> str:
        if not self.in_book:
            return ""
        return f", {self.in_book} of which a worker would send again from the event book"


def over_gap(one: Ordered, view: LaneView) -> Passing:
    """Return the skip to the first event that waits behind a gap; refuses where there is none."""
    if view.state is LaneState.GAP and view.first_behind is not None:
        return Passing(view=view, to=view.first_behind.sequence)
    if view.state is LaneState.BLOCKED and view.head is not None:
        raise click.ClickException(_refusal(one, view.head))
    why = {
        LaneState.EMPTY: "nothing waits in it",
        LaneState.READY: "its next event is parked and about to be handed out",
        LaneState.RETRYING: "its next event is being retried",
    }
    msg = f"{view.address} has no gap at #{view.next_sequence}: {why[view.state]}"
    raise click.ClickException(msg)


def up_to(one: Ordered, view: LaneView, sequence: int, *, in_book: bool) -> Passing:
    """Return the skip to *sequence*; refuses to go back, past a dead letter or past what is known.

    *in_book*: whether the book of the aggregate has the event before *sequence*.
    """
    place = view.address
    if sequence <= view.next_sequence:
        msg = f"{place} is at #{view.next_sequence} already: a lane never goes back"
        raise click.ClickException(msg)
    known = max((waiting.sequence for waiting in view.waiting), default=-1) + 1
    if sequence > known and not in_book:
        instead = f"skip to #{known}" if known > view.next_sequence else "wait until it is there"
        msg = (
            f"nobody knows of an event #{sequence - 1} of {place}, and a skip beyond what is known"
            f" would pass events that are still to come: {instead}"
        )
        raise click.ClickException(msg)
    passing = Passing(view=view, to=sequence)
    for waiting in passing.known:
        if waiting.why is Why.DEAD_LETTER:
            raise click.ClickException(_refusal(one, waiting))
    return passing


def _refusal(one: Ordered, letter: Waiting) -> str:
    place = letter.lane.address
    _, skip = of_letter(one, letter)
    return f"#{letter.sequence} of {place} is a dead letter, which is skipped with: {skip}"


def _waits(waiting: Waiting) -> str:
    return "parked" if waiting.why is Why.EARLY else "being retried"
