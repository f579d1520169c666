from __future__ import annotations

import pytest
from tests.contracts.checkpoints import CheckpointsContract
from tests.contracts.lane_races import LaneRacesContract, SideBySideContract
from tests.contracts.lanes import LanesContract

from angzarr.adapters.memory.lanes import MemoryLanes
from hand_clock import ByHand


class OnMemory(ByHand):
    @pytest.fixture
    def lanes(self, clock):
        return MemoryLanes(clock)

    @pytest.fixture
    def checkpoints(self, lanes):
        return lanes.checkpoints


class TestMemoryLanes(OnMemory, SideBySideContract, LaneRacesContract, LanesContract):
    pass


class TestMemoryCheckpoints(OnMemory, CheckpointsContract):
    pass
