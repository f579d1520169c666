"""The rules of a retry budget: counts and times in, values out. Pure; `budget.lua` says the same.

First attempts are counted in slices of the window, since there are many; retries one by one, since
each may come back. A slice that is not wholly within the window any more counts for nothing, a
retry until the window has left it: what is rounded makes a budget smaller, never larger.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from angzarr.resilience.budget import BudgetSettings
from angzarr.resilience.line import Wait, next_place

#: The window is counted in this many slices.
SLICES = 30

#: Whoever is refused waits at least so long; a wait is at most half the window.
SHORTEST = timedelta(seconds=1)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Line(NamedTuple):
    """Those who wait for a token: the place of the next of them, and how far places are apart."""

    place: datetime
    pace: timedelta


def slice_of(now: datetime, settings: BudgetSettings) -> int:
    """Return the number of the slice that *now* is in; slices follow each other without a gap."""
    return int((now - _EPOCH) / (settings.window / SLICES))


def oldest_slice(now: datetime, settings: BudgetSettings) -> int:
    """Return the number of the oldest slice that lies wholly within the window."""
    return slice_of(now, settings) - SLICES + 1


def allowed(firsts: int, settings: BudgetSettings) -> float:
    """Return how many retries a window with *firsts* first attempts may cost."""
    return settings.share * firsts + settings.least


def pace(firsts: int, settings: BudgetSettings) -> timedelta:
    """Return how far apart tokens come back on average once all are spent."""
    return settings.window / allowed(firsts, settings)


def refused(line: Line, now: datetime, settings: BudgetSettings) -> tuple[Line, Wait]:
    """Return the line behind one more who waits, and how long that is."""
    behind, wait = next_place(
        (line.place - now).total_seconds(),
        SHORTEST.total_seconds(),
        pace=line.pace.total_seconds(),
        longest=settings.window.total_seconds() / 2,
    )
    if behind is None:
        return line, wait
    return Line(now + timedelta(seconds=behind), line.pace), wait
