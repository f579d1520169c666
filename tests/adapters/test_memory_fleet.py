from __future__ import annotations

from functools import partial

import pytest
from tests.contracts.fleet import FleetContract
from tests.hand_clock import ByHand

from angzarr.adapters.memory.idempotency import MemoryFleet, MemoryOwnerLeases


class TestMemoryFleet(ByHand, FleetContract):
    @pytest.fixture
    def leases(self, clock):
        return MemoryOwnerLeases(clock)

    @pytest.fixture
    def make_fleet(self, leases, clock):
        return partial(MemoryFleet, leases, clock=clock)
