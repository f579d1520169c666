"""Pace: how fast a rebuild may go, in events a second."""

from __future__ import annotations

from datetime import timedelta

from angzarr.clock import Clock


class Pace:
    """Lets no more than *rate* events a second through; None: as many as there are.

    What was slow is not made up for: the database has its rest all the same.
    """

    def __init__(self, clock: Clock, rate: float | None) -> None:
        self._clock = clock
        self._rate = rate
        self._since = clock.now()

    def batch(self, most: int) -> int:
        """Return how many events to take at once: those of a second at most."""
        return most if self._rate is None else max(min(most, int(self._rate)), 1)

    def took(self, events: int) -> None:
        """Wait until *events* may have been taken since the last call."""
        if self._rate is None:
            return
        due = self._since + timedelta(seconds=events / self._rate)
        self._clock.sleep(due - self._clock.now())
        self._since = self._clock.now()
