"""One worker of a fleet has a duty, and another one follows whoever does not have it any more."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.hand_clock import HandClock

from angzarr.adapters.memory.idempotency import MemoryIdempotencyStore, MemoryOwnerLeases
from angzarr.errors import StoreUnavailable
from angzarr.resilience.claim_memory import LEASE, FleetDuty, Tenure


class Fleet:
    """Workers whose claim store may be away."""

    def __init__(self) -> None:
        self.clock, self.is_away = HandClock(), False
        self.leases = MemoryOwnerLeases(self.clock)
        self.store = MemoryIdempotencyStore(self.leases, clock=self.clock)
        self.asked = 0

    def worker(self, owner, name="count"):
        tenure = Tenure(self, monotonic=lambda: self.clock.now().timestamp())
        return FleetDuty(tenure, self, owner, name)

    def renew(self, owner, span, /):
        self._answer()
        self.leases.renew(owner, span)

    def claim(self, claims, /):
        self._answer()
        return self.store.claim(claims)

    def settle(self, key, token, ending, /):
        self._answer()
        return self.store.settle(key, token, ending)

    def _answer(self):
        self.asked += 1
        if self.is_away:
            raise StoreUnavailable("away")


@pytest.fixture
def fleet():
    return Fleet()


def test_one_of_a_hundred_workers_has_it_and_keeps_it(fleet):
    workers = [fleet.worker(f"w{number}") for number in range(100)]
    for _ in range(3):
        assert [one.is_ours() for one in workers] == [True] + [False] * 99
        fleet.clock.sleep(LEASE / 4)


def test_who_dies_is_followed_once_its_lease_has_ended(fleet):
    dead, next_one = fleet.worker("w1"), fleet.worker("w2")
    assert dead.is_ours()
    assert not next_one.is_ours()
    fleet.clock.sleep(LEASE + timedelta(seconds=1))
    assert next_one.is_ours()
    assert not dead.is_ours(), "it was only stopped, and lives again"


def test_who_ends_is_followed_at_once(fleet):
    one, other = fleet.worker("w1"), fleet.worker("w2")
    assert one.is_ours()
    assert not other.is_ours()
    one.end()
    assert other.is_ours()
    one.end()
    assert other.is_ours(), "it takes nothing from others"


def test_while_the_store_is_away_whoever_had_it_keeps_it(fleet):
    one, other = fleet.worker("w1"), fleet.worker("w2")
    assert (one.is_ours(), other.is_ours()) == (True, False)
    fleet.clock.sleep(LEASE)
    fleet.is_away = True
    assert (one.is_ours(), other.is_ours()) == (True, False)
    one.end()


def test_duties_of_other_names_are_others(fleet):
    assert fleet.worker("w1", "a").is_ours()
    assert fleet.worker("w2", "b").is_ours()
