from __future__ import annotations

import pytest
from tests.contracts.lane_races import LaneRacesContract, SideBySideContract
from tests.contracts.lanes import LanesContract

from angzarr.adapters.memory.lanes import MemoryLanes
from hand_clock import ByHand


class TestMemoryLanes(ByHand, SideBySideContract, LaneRacesContract, LanesContract):
    @pytest.fixture
    def lanes(self, clock):
        return MemoryLanes(clock)

    @pytest.fixture
    def checkpoints(self, lanes):
        return lanes.checkpoints
