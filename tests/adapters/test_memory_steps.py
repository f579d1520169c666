from __future__ import annotations

import pytest
from tests.contracts.steps import StepLogContract
from tests.hand_clock import ByHand

from angzarr.adapters.memory.idempotency import (
    MemoryIdempotencyStore,
    MemoryOwnerLeases,
    MemoryStepLog,
)


class TestMemoryStepLog(ByHand, StepLogContract):
    @pytest.fixture
    def store(self, clock):
        return MemoryIdempotencyStore(MemoryOwnerLeases(clock), clock=clock)

    @pytest.fixture
    def make_log(self, store, clock):
        return lambda life: MemoryStepLog(store, life=life, clock=clock)
