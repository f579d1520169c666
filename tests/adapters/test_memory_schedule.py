from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from tests.contracts.schedule import ScheduleContract

from angzarr.adapters.memory.schedule import MemorySchedule


class HandClock:
    """A clock that moves when told."""

    def __init__(self) -> None:
        self.time = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self.time

    def sleep(self, span: timedelta) -> None:
        self.time += span


class TestMemorySchedule(ScheduleContract):
    @pytest.fixture
    def clock(self):
        return HandClock()

    @pytest.fixture
    def now(self, clock):
        return clock.now

    @pytest.fixture
    def let_pass(self, clock):
        return clock.sleep

    @pytest.fixture
    def schedule(self, clock):
        return MemorySchedule(clock)
