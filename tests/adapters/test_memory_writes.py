from __future__ import annotations

import pytest
from tests.contracts.writes import WritesContract

from angzarr.adapters.memory.writes import MemoryWrites


class TestMemoryWrites(WritesContract):
    @pytest.fixture
    def writes(self, clock):
        return MemoryWrites(clock)
