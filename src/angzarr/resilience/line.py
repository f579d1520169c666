"""Line: when those who are told to wait ask again, so that they do not all come back at once.

Each has a place of its own, some pace behind the one before. For whom the line is too long it is
some time in the second half of the longest wait, by chance: then any number of them ask no more
often than that. Pure; times are seconds from now.
"""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple


class LineWait(NamedTuple):
    """How long to wait before asking again: at least so long, and up to `spread` longer."""

    least: timedelta
    spread: timedelta = timedelta(0)

    def by(self, chance: float) -> timedelta:
        """Return the wait that *chance* (0 to 1) gives."""
        return self.least + self.spread * chance


def next_place(
    line: float, soonest: float, *, pace: float, longest: float
) -> tuple[float | None, LineWait]:
    """Return the end of the line behind one more who joins it, None: he does not; and his wait.

    *line* is where the next place would be, *soonest* how early there can be one.
    """
    place = max(line, soonest)
    if place > longest:
        half = timedelta(seconds=longest / 2)
        return None, LineWait(half, half)
    return place + pace, LineWait(timedelta(seconds=place))
