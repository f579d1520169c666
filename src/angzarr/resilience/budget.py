"""Retry budgets: what a fleet may add to a dependency's load by retrying (spec D3).

Within a rolling window the retries of a dependency cost at most a share of its first attempts and
a few more. A retry takes a token; one that shows that the dependency is well gives it back, so that
only retries that fail spend a budget.

First attempts are counted in slices of the window, since there are many; retries one by one, since
each may come back. A slice that is not wholly within the window counts for nothing, a retry until
the window has left it: rounding makes a budget smaller, never larger. The rules are pure, and
`budget.lua` says the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, Protocol

from angzarr.resilience.backoff import check_fields
from angzarr.resilience.limit import LineWait, next_place


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetSettings:
    """How many retries a dependency may cost. Raises ConfigurationError for what cannot work."""

    #: Retries for each first attempt within the window.
    share: float = 0.2
    #: Retries besides; as many may be under way where there are no first attempts.
    least: int = 10
    window: timedelta = timedelta(seconds=60)
    enabled: bool = True

    def __post_init__(self) -> None:
        check_fields(
            "budget settings",
            (self.share >= 0, "share must be 0 or more"),
            (self.least >= 1, "least must be 1 or more, or a lone failure would never be retried"),
            (self.window >= timedelta(seconds=1), "window must be 1 s or more"),
        )


class Spent(NamedTuple):
    """The budget of *name* is spent."""

    name: str
    wait: LineWait


class Budgets(Protocol):
    """The retry budgets of a process or a fleet, by the name of the dependency.

    No verb raises: a flow store that is away lets retries go on (fail open).
    """

    def first(self, names: Sequence[str], /) -> None:
        """Count a first attempt for each of *names*; asks no store."""

    def retry(self, names: Sequence[str], token: str, /) -> Spent | None:
        """Take a token from the budget of each of *names*, or from none of them.

        Returns the budget that is spent, None if *token* may retry. Asking again with a token let
        through is harmless.
        """

    def returned(self, names: Sequence[str], token: str, /) -> None:
        """Give back what *token* took: its retry did the dependency no harm, or was not made.

        Harmless for one that took nothing.
        """


#: The window is counted in this many slices.
SLICES = 30

#: A refused call waits at least so long; a wait is at most half the window.
SHORTEST = timedelta(seconds=1)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class RetryLine(NamedTuple):
    """Those who wait for a token: the place of the next of them, and how far places are apart."""

    place: datetime
    pace: timedelta


def slice_of(now: datetime, settings: BudgetSettings) -> int:
    """The number of the slice that *now* is in; slices follow each other without a gap."""
    return (now - _EPOCH) * SLICES // settings.window  # a thirtieth of it is rounded to 1 µs


def oldest_slice(now: datetime, settings: BudgetSettings) -> int:
    """The number of the oldest slice that lies wholly within the window."""
    return slice_of(now, settings) - SLICES + 1


def allowed(firsts: int, settings: BudgetSettings) -> float:
    """How many retries a window with *firsts* first attempts may cost."""
    return settings.share * firsts + settings.least


def pace(firsts: int, settings: BudgetSettings) -> timedelta:
    """How far apart tokens come back on average once all are spent."""
    return settings.window / allowed(firsts, settings)


def refused(line: RetryLine, now: datetime, settings: BudgetSettings) -> tuple[RetryLine, LineWait]:
    """The line behind one more who waits, and how long that is."""
    behind, wait = next_place(
        (line.place - now).total_seconds(),
        SHORTEST.total_seconds(),
        pace=line.pace.total_seconds(),
        longest=settings.window.total_seconds() / 2,
    )
    if behind is None:
        return line, wait
    return RetryLine(now + timedelta(seconds=behind), line.pace), wait
