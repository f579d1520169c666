"""Putting: events into a green space, past those that fail or are skipped.

A batch is one transaction. Only one in which something fails is taken apart: what is before the
event, the event, what is behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from angzarr.aggregates.book import Address
from angzarr.aggregates.event_store import Head
from angzarr.errors import RebuildError, Skip, text_of
from angzarr.events.event import Event
from angzarr.projections.green import Applied, Failure, Green
from angzarr.projections.rebuild_reading import head_after, head_of
from angzarr.runtime.text import printable

#: Characters of an error that are kept.
_LONGEST = 500


@dataclass(kw_only=True)
class Putting:
    """Puts events into *green*; *keep_going*: a failure only stops its own aggregate."""

    green: Green
    keep_going: bool = False
    #: The aggregates that stay where they are, and at which event.
    stuck: dict[Address, Failure] = field(default_factory=dict)
    #: Events that are in the space.
    events: int = 0

    def put(self, events: Sequence[Event], cursor: Head | None) -> None:
        """Put *events* there; the scan is at *cursor* then, or where it was with None.

        Raises RebuildError at an event that fails; what is before it is kept.
        """
        parts = [(events, cursor)]
        while parts:
            part, after = parts.pop()
            loose = [event for event in part if head_of(event).address not in self.stuck]
            answer = self.green.apply(loose, after)
            if isinstance(answer, Applied):
                self.events += answer.events
                continue
            at, error = answer.at, answer.error
            scans = cursor is not None
            if at:
                parts += [
                    (loose[at:], after),
                    (loose[:at], head_of(loose[at]) if scans else None),
                ]
                continue
            parts += [(loose[1:], after)]
            self._pass_by(loose[0], error, head_after(loose[0]) if scans else None)

    def forgive(self) -> None:
        """Try again all aggregates that stayed where they were."""
        self.green.forgive()
        self.stuck.clear()

    def standing(self) -> tuple[int, dict[Address, Failure]]:
        """Return how many events there are and who is stuck, for `back_to`."""
        return self.events, dict(self.stuck)

    def back_to(self, standing: tuple[int, dict[Address, Failure]], /) -> None:
        """Forget what was put since then, in a transaction that was undone."""
        self.events, self.stuck = standing

    def _pass_by(self, event: Event, error: Exception, after: Head | None) -> None:
        if isinstance(error, Skip):
            self.green.pass_by(event, after, None)
            self.events += 1
            return
        failure = failure_of(event, error)
        if not self.keep_going:
            raise RebuildError(told(failure)) from error
        self.green.pass_by(event, after, failure)
        self.stuck[failure.address] = failure


def failure_of(event: Event, error: Exception) -> Failure:
    """Return that *event* raised *error*."""
    address, sequence = head_of(event)
    # What a database says goes on with the statement, and with the data in it.
    said = text_of(getattr(error, "orig", None) or error).partition("\n")[0]
    shown = printable(f"{type(error).__name__}: {said}")[:_LONGEST]
    return Failure(address, sequence, event.id, event.type, shown)


def told(failure: Failure) -> str:
    """Return what stopped a rebuild, and what to do, as one sentence."""
    address, sequence, event_id, event_type, error = failure
    return (
        f"the rebuild stopped at event {event_id} ({event_type}), sequence {sequence} of"
        f" {address}: {error}; everything before it is kept: fix the projection and run the"
        " rebuild again, or leave this aggregate as it is with --keep-going"
    )
