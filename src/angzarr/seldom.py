"""Seldom: how often something that goes on is said, so that an outage is one line a minute."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

#: Seconds between two lines about the same outage.
A_MINUTE: Final = 60.0


class Seldom:
    """Says yes at most once in so many seconds, the first time at once."""

    def __init__(
        self, seconds: float = A_MINUTE, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._seconds = seconds
        self._monotonic = monotonic
        self._next = float("-inf")

    def now(self) -> bool:
        """Return whether it is time again."""
        moment = self._monotonic()
        if moment < self._next:
            return False
        self._next = moment + self._seconds
        return True
