from __future__ import annotations

from functools import partial

import pytest
from tests.contracts.fleet import FleetContract
from tests.contracts.idempotency import LONG, SHORT, IdempotencyContract
from tests.contracts.idempotency_model import compare_with_memory
from tests.contracts.steps import StepLogContract
from tests.hand_clock import ByHand

from angzarr.adapters.memory.idempotency import (
    MemoryFleet,
    MemoryIdempotencyStore,
    MemoryOwnerLeases,
    MemoryStepLog,
)
from angzarr.resilience.claim_memory import CompletedCache
from angzarr.resilience.idempotency import Claim, Claimed, Complete


class WithLeases(ByHand):
    @pytest.fixture
    def leases(self, clock):
        return MemoryOwnerLeases(clock)


class OnMemory(WithLeases, IdempotencyContract):
    @pytest.fixture
    def make_store(self, leases, clock):
        return lambda life: MemoryIdempotencyStore(leases, life=life, clock=clock)


class TestMemoryStore(OnMemory):
    def test_sweep_drops_expired_records_only(self, make_store, let_pass):
        store = make_store(SHORT)
        store.claim([Claim(key=f"{n}", token="t", owner="o") for n in range(3)])
        store.settle("2", "t", Complete(life=LONG))
        assert store.sweep() == 0
        let_pass(SHORT)
        assert store.sweep(limit=1) == 1
        assert store.sweep() == 1
        assert not isinstance(store.claim([Claim(key="2", token="u", owner="o")])[0], Claimed)


class TestCompletedCache(OnMemory):
    @pytest.fixture
    def make_store(self, leases, clock):
        return lambda life: CompletedCache(
            MemoryIdempotencyStore(leases, life=life, clock=clock), clock=clock
        )

    def test_random_histories_match_the_store_behind_it(self):
        leases = MemoryOwnerLeases()
        store = MemoryIdempotencyStore(leases)
        compare_with_memory(
            CompletedCache(store), leases, outbox=store.outbox, histories=200, steps=40
        )


class TestMemoryStepLog(WithLeases, StepLogContract):
    @pytest.fixture
    def store(self, leases, clock):
        return MemoryIdempotencyStore(leases, clock=clock)

    @pytest.fixture
    def make_log(self, store, clock):
        return lambda life: MemoryStepLog(store, life=life, clock=clock)


class TestMemoryFleet(WithLeases, FleetContract):
    @pytest.fixture
    def make_fleet(self, leases, clock):
        return partial(MemoryFleet, leases, clock=clock)
