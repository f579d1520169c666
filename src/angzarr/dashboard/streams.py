"""Streams: connections that stay open while a page is looked at; few for each caller."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Final

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from angzarr.dashboard.problem import Problem

#: A browser opens no more than six to one server by itself.
MOST_EACH: Final = 20


#: Of all callers: a quarter of the connections that the server takes.
MOST_OPEN: Final = 50
_BREATH: Final = timedelta(seconds=1)


class Stream(StreamingResponse):
    """A stream that is counted from when it is granted until it ends."""

    def __init__(self, told: AsyncIterator[str], streams: Streams, caller: str) -> None:
        super().__init__(told, media_type="text/event-stream")
        self._streams, self._caller = streams, caller

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Tell it, and let its place go."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams.release(self._caller)


class Streams:
    """Counts the open streams of each caller; all end when the server does."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()
        self.ending = False

    def held(self, caller: str, told: AsyncIterator[str]) -> Stream:
        """Return *told* as one more stream of *caller*; raises Problem 429."""
        if self._open[caller] >= MOST_EACH or self._open.total() >= MOST_OPEN:
            msg = "too many pages are followed at once: close some"
            raise Problem(429, "too-many", msg, headers={"Retry-After": "30"})
        self._open[caller] += 1
        return Stream(told, self, caller)

    def release(self, caller: str) -> None:
        """Let one stream of *caller* go."""
        self._open[caller] -= 1
        if not self._open[caller]:
            del self._open[caller]

    async def rest(self, pause: timedelta) -> None:
        """Wait for *pause*, or until all streams end."""
        while pause > timedelta(0) and not self.ending:
            await asyncio.sleep(min(pause, _BREATH).total_seconds())
            pause -= _BREATH
