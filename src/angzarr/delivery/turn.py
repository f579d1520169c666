"""Turn: an event of an ordered handler whose lane has come to it (spec P3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from angzarr.errors import Postpone, StoreUnavailable, text_of
from angzarr.ordering.lane import Elsewhere, Lanes, Moved, Step


@dataclass(slots=True)
class Turn:
    """One delivery's turn; used by the thread that runs it."""

    lanes: Lanes
    step: Step
    #: How the run moved the lane, where it did so itself.
    moved: Moved | None = None

    def run(self, work: Callable[[Any], object]) -> None:
        """Do *work* and move the lane in one transaction.

        Raises what *work* does. Raises Postpone, which uses no attempt, if the database is away or
        somebody else moved the lane meanwhile: nothing was written, or it is not known, and the
        lane will tell.
        """
        try:
            answer = self.lanes.run(self.step, work)
        except StoreUnavailable as away:
            raise Postpone(reason=text_of(away)) from away
        if isinstance(answer, Elsewhere):
            raise Postpone(reason="its lane was moved meanwhile")
        self.moved = answer
