"""The owner lease: held before anything is claimed, and taken again as soon as that is possible."""

from __future__ import annotations

import threading

import pytest

from angzarr.adapters.celery.worker import owner_lease
from angzarr.adapters.celery.worker.owner_lease import LeaseKeeper
from angzarr.errors import StoreUnavailable
from angzarr.resilience.claim_memory import Tenure


class Leases:
    """A store that is away for the next *failures* renewals."""

    def __init__(self, failures=0):
        self.failures = failures
        self.renewed = 0
        self.held = threading.Event()

    def renew(self, _owner, _span):
        if self.failures:
            self.failures -= 1
            msg = "away"
            raise StoreUnavailable(msg)
        self.renewed += 1
        self.held.set()

    def end(self, _owner):
        self.held.clear()


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(owner_lease, "RETRIED_EVERY", owner_lease.RETRIED_EVERY / 100)


def test_a_worker_that_starts_while_the_store_is_away_waits_for_its_lease():
    leases = Leases(failures=5)
    keeper = LeaseKeeper(Tenure(leases), "me")
    keeper.start(lambda: False)
    assert leases.renewed >= 1, "it may claim now: others see that it lives"
    keeper.end()
    assert not leases.held.is_set()


def test_a_worker_that_is_stopped_waits_no_longer():
    leases = Leases(failures=10**9)
    asked = iter([False, False, True])
    keeper = LeaseKeeper(Tenure(leases), "me")
    keeper.start(lambda: next(asked))
    keeper.end()
    assert leases.renewed == 0


class Waits:
    """Stands for the event that ends the thread: writes the waits down, and ends it."""

    def __init__(self, turns):
        self.turns, self.seconds = turns, []

    def wait(self, seconds):
        self.seconds.append(seconds)
        return len(self.seconds) > self.turns


def test_a_lease_that_could_not_be_renewed_is_tried_again_soon():
    keeper = LeaseKeeper(Tenure(Leases(failures=2)), "me", monotonic=lambda: 0.0)
    keeper._ended = waits = Waits(4)
    keeper._keep()
    usual = owner_lease.RENEWED_EVERY.total_seconds()
    soon = owner_lease.RETRIED_EVERY.total_seconds()
    assert waits.seconds == [usual, soon, soon, usual, usual]


def test_an_outage_is_one_line_a_minute(caplog):
    keeper = LeaseKeeper(Tenure(Leases(failures=50)), "me")
    keeper.start(lambda: False)
    keeper.end()
    said = [one for one in caplog.records if "owner_lease_not_renewed" in one.message]
    assert len(said) == 1


class Register:
    """Stands for a membership: takes its time with each renewal."""

    def __init__(self, takes=0.0):
        self.takes, self.time, self.renewed = takes, 0.0, 0

    def renew(self):
        self.time += self.takes
        self.renewed += 1


def test_a_slow_register_does_not_put_the_next_renewal_off():
    slow = Register(takes=1.5)
    keeper = LeaseKeeper(Tenure(Leases()), "me", membership=slow, monotonic=lambda: slow.time)
    keeper._ended = waits = Waits(2)
    keeper._keep()
    assert waits.seconds == [0.5, 0.5, 0.5]
    slow.takes = 60.0
    keeper._ended = waits = Waits(2)
    keeper._keep()
    assert waits.seconds == [0.0, 0.0, 0.0]


def test_the_fleet_is_told_at_once_and_behind_each_renewal_that_worked():
    register, leases = Register(), Leases(failures=2)
    keeper = LeaseKeeper(Tenure(leases), "me", membership=register, monotonic=lambda: 0.0)
    keeper._ended = Waits(4)
    keeper._keep()
    assert (register.renewed, leases.renewed) == (3, 2)


def test_another_failure_does_not_silence_a_lease_that_is_lost(caplog):
    def sweep():
        msg = "no right to delete"
        raise RuntimeError(msg)

    leases = Leases()
    keeper = LeaseKeeper(Tenure(leases), "me", sweep)
    keeper._ended = Waits(30)
    keeper._keep()
    leases.failures = 1
    keeper._renew()
    said = " ".join(one.message for one in caplog.records)
    assert "expired_claims_not_swept" in said
    assert "owner_lease_not_renewed" in said
