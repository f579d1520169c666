"""Streams: connections that stay open while a page is looked at, or much is read; few for each."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any, Final, TypeAlias

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from angzarr.dashboard.problem import Problem

#: A browser opens no more than six to one server by itself.
MOST_EACH: Final = 20

#: Of all callers: a quarter of the connections that the server takes.
MOST_OPEN: Final = 50
#: Events as they happen, or what is read as fast as it is taken.
Told: TypeAlias = AsyncIterator[str] | Iterator[bytes]
_BREATH: Final = timedelta(seconds=1)


class Stream(StreamingResponse):
    """A stream that is counted from when it is granted until it ends."""

    def __init__(
        self, told: Told, streams: Streams, caller: str, counts: int, **options: Any
    ) -> None:
        super().__init__(told, **options)
        self._streams, self._caller, self._counts = streams, caller, counts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Tell it, and let its place go."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams.release(self._caller, self._counts)


class Streams:
    """Counts the open streams of each caller; all end when the server does."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.ending = False

    def held(self, caller: str, told: Told, *, counts: int = 1, **options: Any) -> Stream:
        """Return *told* as one more stream of *caller*; raises Problem 429.

        It *counts* as so many streams. *options* are those of starlette's StreamingResponse.
        """
        with self._lock:
            each, all_ = self._open[caller] + counts, self._open.total() + counts
            if each > MOST_EACH or all_ > MOST_OPEN:
                msg = "too many pages are followed, or exports written, at once: end some"
                raise Problem(429, "too-many", msg, headers={"Retry-After": "30"})
            self._open[caller] = each
        return Stream(told, self, caller, counts, **options)

    def release(self, caller: str, counts: int) -> None:
        """Let one stream of *caller* go."""
        with self._lock:
            self._open[caller] -= counts
            if not self._open[caller]:
                del self._open[caller]

    async def rest(self, pause: timedelta) -> None:
        """Wait for *pause*, or until all streams end."""
        while pause > timedelta(0) and not self.ending:
            await asyncio.sleep(min(pause, _BREATH).total_seconds())
            pause -= _BREATH
