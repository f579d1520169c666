from __future__ import annotations

import pytest
from tests.contracts.peers import PeersContract

from angzarr.adapters.memory.ledger import MemoryLedger
from angzarr.adapters.memory.peers import MemoryPeers


class TestMemoryPeers(PeersContract):
    @pytest.fixture
    def ledger(self, clock):
        return MemoryLedger(clock)

    @pytest.fixture
    def peers(self, ledger):
        return MemoryPeers(ledger)
