"""Looked: a lane that was looked at, where its run needs nothing that begins before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from angzarr.ordering.lane import Elsewhere, Moved, Place, Step
from angzarr.ordering.lanes import Entered, Lanes


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
