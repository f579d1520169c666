"""Pulse: when something last moved. It is beaten often and looked at seldom."""

from __future__ import annotations

import time
from collections.abc import Callable


class Pulse:
    """One monotonic stamp, written by whoever moves and read by any thread."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._beaten_at = monotonic()

    def beat(self) -> None:
        """Say that it moved."""
        self._beaten_at = self._monotonic()

    def age(self) -> float:
        """Return how many seconds ago it moved last, or was made."""
        return max(self._monotonic() - self._beaten_at, 0.0)
