"""Turn: an event of an ordered handler whose lane has come to it (spec P3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from angzarr.errors import Postpone, StoreUnavailable, text_of
from angzarr.ordering.lane import Elsewhere, Moved, Place, Step
from angzarr.ordering.lanes import Entered, Lanes


@dataclass(slots=True)
class Turn:
    """One delivery's turn; used by the thread that runs it."""

    lanes: Lanes
    step: Step
    #: How the run moved the lane, where it did so itself.
    moved: Moved | None = None
    _entered: Entered | None = field(default=None, init=False)

    def look(self) -> Place:
        """Return where the lane is; raises StoreUnavailable."""
        return self.lanes.look(self.step.lane)

    def enter(self) -> Place | None:
        """Return where the lane is, and be ready to `run` if it is at the step: then `leave`.

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
