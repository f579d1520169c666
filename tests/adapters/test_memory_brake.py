from __future__ import annotations

import pytest
from tests.contracts.brake import BrakeContract

from angzarr.adapters.memory.brake import MemoryBrake


class TestMemoryBrake(BrakeContract):
    @pytest.fixture
    def brake(self, clock):
        return MemoryBrake(clock)
