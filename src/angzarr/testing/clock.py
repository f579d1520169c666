"""FakeClock: time that passes when a test says so, or when there is nothing to do before later."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta


class FakeClock:
    """What stands in for the machine's clock; safe from any thread.

    It begins at *start*, by default the last whole second of the machine's clock, stands still
    between two words of `advance`, `move_to` and `sleep`, and never goes back.
    """

    def __init__(self, start: datetime | None = None) -> None:
        self._lock = threading.Lock()
        self._now = (start or datetime.now(UTC).replace(microsecond=0)).astimezone(UTC)

    def now(self) -> datetime:
        """The time, UTC-aware."""
        return self._now

    def advance(
        self,
        span: timedelta = timedelta(0),
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
    ) -> datetime:
        """Let time pass and return the new one; raises ValueError for a span below zero."""
        passed = span + timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        if passed < timedelta(0):
            msg = f"time does not go back: advance was given {passed}"
            raise ValueError(msg)
        with self._lock:
            self._now += passed
            return self._now

    def move_to(self, at: datetime) -> datetime:
        """Let it be *at*, which must be aware; a time that has passed changes nothing."""
        with self._lock:
            self._now = max(self._now, at.astimezone(UTC))
            return self._now

    def sleep(self, span: timedelta) -> None:
        """Let *span* pass at once, for who would wait for it."""
        self.advance(max(span, timedelta(0)))

    async def asleep(self, span: timedelta) -> None:
        """Do the same, and let others of the event loop have their turn."""
        self.sleep(span)
        await asyncio.sleep(0)

    def __repr__(self) -> str:
        return f"<FakeClock {self._now.isoformat()}>"
