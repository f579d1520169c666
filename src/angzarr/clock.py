"""Time as a port, so that rules take no clock and tests need not wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol


class Clock(Protocol):
    """What the time is, and how to let it pass."""

    def now(self) -> datetime:
        """Return the time, UTC-aware."""

    def sleep(self, span: timedelta) -> None:
        """Let *span* pass; zero or less returns at once."""

    async def asleep(self, span: timedelta) -> None:
        """Let *span* pass, and what else the event loop has to do run meanwhile."""


class SystemClock:
    """The machine's clock, or what stands in for it in this process (`standing_in`)."""

    def now(self) -> datetime:
        """Return the machine's time in UTC."""
        return _STANDS_IN[-1].now() if _STANDS_IN else datetime.now(UTC)

    def sleep(self, span: timedelta) -> None:
        """Block this thread for *span*."""
        if _STANDS_IN:
            _STANDS_IN[-1].sleep(span)
        elif span > timedelta(0):
            time.sleep(span.total_seconds())

    async def asleep(self, span: timedelta) -> None:
        """Suspend this task for *span*."""
        if _STANDS_IN:
            await _STANDS_IN[-1].asleep(span)
        else:
            await asyncio.sleep(max(span.total_seconds(), 0))


#: For a test whose time passes by its own word; empty in a worker.
_STANDS_IN: Final[list[Clock]] = []


@contextmanager
def standing_in(clock: Clock) -> Iterator[None]:
    """Let *clock* be what every `SystemClock` of this process says, those made before too.

    Nothing that waits on a socket, a lock or `time.sleep` hears of it.
    """
    _STANDS_IN.append(clock)
    try:
        yield
    finally:
        _STANDS_IN.remove(clock)
