"""Streams: connections that stay open while a page is looked at; few for each caller."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import Final

from angzarr.dashboard.problem import Problem

#: A browser opens no more than six to one server by itself.
MOST_EACH: Final = 20


class Streams:
    """Counts the open streams of each caller; all end when the server does."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()
        self.ending = False

    def held(self, caller: str, told: AsyncIterator[str]) -> AsyncIterator[str]:
        """Return *told* as one more stream of *caller*; raises Problem 429."""
        if self._open[caller] >= MOST_EACH:
            msg = "too many pages are followed at once: close some"
            raise Problem(429, "too-many", msg, headers={"Retry-After": "30"})
        return self._counted(caller, told)

    async def _counted(self, caller: str, told: AsyncIterator[str]) -> AsyncIterator[str]:
        self._open[caller] += 1
        try:
            async for one in told:
                yield one
        finally:
            self._open[caller] -= 1
            if not self._open[caller]:
                del self._open[caller]
