"""Clock: time as a port, so that rules take no clock and tests need not wait.

The fleet has one clock, its claim store's. A worker whose machine says something else goes by the
store's (`follow`): no time that one machine wrote is compared with another's.
"""

from __future__ import annotations

import asyncio
import math
import mmap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol


class Clock(Protocol):
    """What the time is, and how to let it pass."""

    def now(self) -> datetime:
        """The time, UTC-aware."""

    def sleep(self, span: timedelta) -> None:
        """Let *span* pass; zero or less returns at once."""

    async def asleep(self, span: timedelta) -> None:
        """Let *span* pass, and what else the event loop has to do run meanwhile."""


class SystemClock:
    """The fleet's time as this machine knows it, or what stands in for it (`standing_in`)."""

    def now(self) -> datetime:
        """The machine's time in UTC, or the store's where the machine's is wrong."""
        if _STANDS_IN:
            return _STANDS_IN[-1].now()
        ahead = _FOLLOWED[0]
        if ahead == ahead:  # noqa: PLR0124 - no NaN: a clock is followed
            return datetime.fromtimestamp(time.monotonic() + ahead, UTC)
        return datetime.now(UTC)

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


#: How far the store's clock is ahead of `time.monotonic`, in seconds; NaN: this machine's own
#: clock is good. A page that forked children share: the parent compares, all of them go by it.
_FOLLOWED: Final = memoryview(mmap.mmap(-1, 8)).cast("d")
_FOLLOWED[0] = math.nan


def follow(there: datetime | None) -> None:
    """Let it be *there* now for all processes of this worker; None: the machine's own clock again.

    The span since is measured by the monotonic clock, which a corrected machine does not jump.
    """
    _FOLLOWED[0] = math.nan if there is None else there.timestamp() - time.monotonic()


def stands_in() -> bool:
    """True if the time of this process is a test's."""
    return bool(_STANDS_IN)


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
