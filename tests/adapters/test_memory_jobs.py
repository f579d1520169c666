from __future__ import annotations

import pytest
from tests.contracts.jobs import JobsContract

from angzarr.adapters.memory.jobs import MemoryReplayJobs
from angzarr.adapters.memory.ledger import MemoryLedger


class TestMemoryReplayJobs(JobsContract):
    @pytest.fixture
    def ledger(self, clock):
        return MemoryLedger(clock)

    @pytest.fixture
    def jobs(self, ledger, clock):
        return MemoryReplayJobs(ledger, clock)
