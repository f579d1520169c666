"""Time as a port, so that rules take no clock and tests need not wait."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """What the time is, and how to let it pass."""

    def now(self) -> datetime:
        """Return the time, UTC-aware."""

    def sleep(self, span: timedelta) -> None:
        """Let *span* pass; zero or less returns at once."""

    async def asleep(self, span: timedelta) -> None:
        """Let *span* pass, and what else the event loop has to do run meanwhile."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the machine's time in UTC."""
        return datetime.now(UTC)

    def sleep(self, span: timedelta) -> None:
        """Block this thread for *span*."""
        if span > timedelta(0):
            time.sleep(span.total_seconds())

    async def asleep(self, span: timedelta) -> None:
        """Suspend this task for *span*."""
        await asyncio.sleep(max(span.total_seconds(), 0))
