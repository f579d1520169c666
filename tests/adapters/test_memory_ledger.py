from __future__ import annotations

import pytest
from tests.contracts.groups import GroupsContract
from tests.contracts.ledger import LedgerContract

from angzarr.adapters.memory.ledger import MemoryLedger


class TestMemoryLedger(LedgerContract):
    @pytest.fixture
    def ledger(self, clock):
        return MemoryLedger(clock)


class TestMemoryGroups(GroupsContract):
    @pytest.fixture
    def ledger(self, clock):
        return MemoryLedger(clock)
