from __future__ import annotations

import pytest
from tests.contracts.schedule import ScheduleContract
from tests.hand_clock import ByHand

from angzarr.adapters.memory.schedule import MemorySchedule


class TestMemorySchedule(ByHand, ScheduleContract):
    @pytest.fixture
    def now(self, clock):
        return clock.now

    @pytest.fixture
    def pretend(self, clock):
        return clock.sleep

    @pytest.fixture
    def schedule(self, clock):
        return MemorySchedule(clock)
