"""FailureCounts: how often each of many things failed in a row, so that some end is put to it."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import Final

#: The things that are counted at once.
MOST_COUNTED: Final = 10_000


class FailureCounts:
    """Counts by key, in this process alone; safe to use from many threads.

    With more than *most* keys it forgets the one that failed longest ago: some end elsewhere.
    """

    def __init__(self, most: int = MOST_COUNTED) -> None:
        self._most = most
        self._counts: dict[Hashable, int] = {}
        self._lock = threading.Lock()

    def add(self, key: Hashable) -> int:
        """Count one failure of *key*; return how many there are now."""
        with self._lock:
            count = self._counts.pop(key, 0) + 1
            self._counts[key] = count
            if len(self._counts) > self._most:
                del self._counts[next(iter(self._counts))]
            return count

    def forget(self, key: Hashable) -> None:
        """Begin anew with *key*: it worked, or it has its end."""
        with self._lock:
            self._counts.pop(key, None)

    def __len__(self) -> int:
        """Return how many keys are counted."""
        return len(self._counts)
