"""A clock that tests move by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from angzarr.runtime.failures import LogThrottle

START = datetime(2026, 1, 1, 12, tzinfo=UTC)


class HandClock:
    """A clock that moves when told."""

    def __init__(self) -> None:
        self.time = START

    def now(self) -> datetime:
        return self.time

    def sleep(self, span: timedelta) -> None:
        self.time += max(span, timedelta(0))

    async def asleep(self, span: timedelta) -> None:
        self.sleep(span)


class ByHand:
    """What contract suites ask for, of stores in memory whose time a test moves."""

    @pytest.fixture
    def clock(self) -> HandClock:
        return HandClock()

    @pytest.fixture
    def let_pass(self, clock):
        return clock.sleep


def seldom_by(clock) -> LogThrottle:
    """Once a minute by *clock*, not by the machine's."""
    return LogThrottle(monotonic=lambda: clock.now().timestamp())
