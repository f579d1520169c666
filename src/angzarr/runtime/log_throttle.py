"""Seldom: how often something that goes on is said, so that an outage is one line a minute."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

#: Seconds between two lines about the same outage.
A_MINUTE: Final = 60.0


class LogThrottle:
    """Says yes at most once in so many seconds for each cause, the first time at once.

    It remembers a cause for two such spans at most, so there may be many over time.
    """

    def __init__(
        self, seconds: float = A_MINUTE, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._seconds = seconds
        self._monotonic = monotonic
        self._next: dict[str, float] = {}
        self._forget_at = float("-inf")

    def now(self, cause: str = "") -> bool:
        """Return whether it is time to speak of *cause* again."""
        moment = self._monotonic()
        if moment < self._next.get(cause, float("-inf")):
            return False
        if moment >= self._forget_at:
            self._forget(moment)
        self._next[cause] = moment + self._seconds
        return True

    def _forget(self, moment: float) -> None:
        """Forget the causes of which it may be spoken."""
        for cause, again_at in self._next.copy().items():
            if again_at <= moment:
                self._next.pop(cause, None)
        self._forget_at = moment + self._seconds
