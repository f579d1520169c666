from __future__ import annotations

import pytest
from tests.contracts.rejections import RejectionLogContract

from angzarr.adapters.memory.event_store import MemoryRejectionLog


class TestMemoryRejectionLog(RejectionLogContract):
    @pytest.fixture
    def log(self):
        return MemoryRejectionLog()
