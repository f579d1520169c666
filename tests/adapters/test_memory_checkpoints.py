from __future__ import annotations

import pytest
from tests.contracts.checkpoints import CheckpointsContract

from angzarr.adapters.memory.lanes import MemoryLanes


class TestMemoryCheckpoints(CheckpointsContract):
    @pytest.fixture
    def lanes(self):
        return MemoryLanes()

    @pytest.fixture
    def checkpoints(self, lanes):
        return lanes.checkpoints
