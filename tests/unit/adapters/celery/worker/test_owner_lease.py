"""The owner lease and the fleet's register: held, renewed, and never hurt by the other."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta

import pytest

from angzarr.adapters.celery.worker import owner_lease
from angzarr.adapters.celery.worker.owner_lease import LEFT_ALONE, LeaseKeeper, Membership
from angzarr.errors import StoreUnavailable
from angzarr.fleet import SAID_AGAIN, SAID_LIFE, Member
from angzarr.resilience.claim_memory import LEASE, Tenure
from hand_clock import START, HandClock

TURN = timedelta(seconds=2)
TURNS_A_MINUTE = 30


class Register:
    """Writes down what it is told, and fails as long as it has an `error`."""

    def __init__(self):
        self.error, self.asked, self.told = None, 0, []

    def register(self, member, /):
        self.asked += 1
        if self.error is not None:
            raise self.error
        self.told.append(member)


class Worker:
    """A worker whose clock is moved by hand."""

    def __init__(self):
        self.clock = HandClock()
        self.register = Register()
        self.member = Member(owner="me", host="h", pid=1, release="v1", started_at=START)
        self.membership = Membership(
            self.register, lambda: self.member, lambda: self.clock.now().timestamp()
        )

    def turns(self, number):
        for _ in range(number):
            self.membership.renew()
            self.clock.sleep(TURN)


@pytest.fixture
def worker():
    return Worker()


def test_a_worker_says_what_it_is_at_once_and_then_once_a_minute(worker):
    worker.turns(1)
    assert worker.register.told == [worker.member]
    worker.turns(10 * TURNS_A_MINUTE - 1)
    assert worker.register.told == [worker.member] * 10


def test_what_is_said_again_is_never_forgotten_meanwhile():
    assert SAID_AGAIN + timedelta(seconds=LEFT_ALONE[1]) < SAID_LIFE / 3


def test_a_worker_that_changed_says_so_with_the_next_renewal(worker):
    worker.turns(2)
    worker.member = replace(worker.member, queues=("more",))
    worker.turns(3)
    assert [one.queues for one in worker.register.told] == [(), ("more",)]


@pytest.mark.parametrize("error", [StoreUnavailable("away"), RuntimeError("a bug of ours")])
def test_a_register_that_fails_hurts_nobody_and_is_left_alone_ever_longer(worker, error, caplog):
    worker.register.error = error
    worker.turns(3 * TURNS_A_MINUTE)
    assert 0 < worker.register.asked <= 10
    said = [one for one in caplog.records if one.message.startswith("fleet_not_told")]
    assert len(said) == 3, "one line a minute"

    worker.register.error = None
    worker.turns(int(LEFT_ALONE[1] / TURN.total_seconds()))
    assert worker.register.told == [worker.member]


def test_one_failure_is_mended_by_the_next_renewal(worker):
    worker.register.error = StoreUnavailable("a hiccup")
    worker.turns(1)
    worker.register.error = None
    worker.turns(1)
    worker.register.error = StoreUnavailable("a later one is not held against it")
    worker.turns(TURNS_A_MINUTE)
    worker.register.error = None
    worker.turns(1)
    assert worker.register.told == [worker.member] * 2


def test_a_worker_that_cannot_say_what_it_is_goes_on(worker):
    worker.membership._look = lambda: 1 / 0
    worker.turns(2)
    assert worker.register.told == []


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
    usual = LEASE.total_seconds() / owner_lease.RENEWALS
    soon = owner_lease.RETRIED_EVERY.total_seconds()
    assert waits.seconds == [usual, soon, soon, usual, usual]


def test_a_shorter_lease_is_renewed_more_often():
    keeper = LeaseKeeper(Tenure(Leases(), span=TURN), "me", monotonic=lambda: 0.0)
    keeper._ended = waits = Waits(1)
    keeper._keep()
    assert waits.seconds == [0.5, 0.5]


def test_an_outage_is_one_line_a_minute(caplog):
    keeper = LeaseKeeper(Tenure(Leases(failures=50)), "me")
    keeper.start(lambda: False)
    keeper.end()
    said = [one for one in caplog.records if "owner_lease_not_renewed" in one.message]
    assert len(said) == 1


class SlowMembership:
    """Stands for a membership: takes its time with each renewal."""

    def __init__(self, takes=0.0):
        self.takes, self.time, self.renewed = takes, 0.0, 0

    def renew(self):
        self.time += self.takes
        self.renewed += 1


def test_a_slow_register_does_not_put_the_next_renewal_off():
    slow = SlowMembership(takes=1.5)
    keeper = LeaseKeeper(Tenure(Leases()), "me", membership=slow, monotonic=lambda: slow.time)
    keeper._ended = waits = Waits(2)
    keeper._keep()
    assert waits.seconds == [0.5, 0.5, 0.5]
    slow.takes = 60.0
    keeper._ended = waits = Waits(2)
    keeper._keep()
    assert waits.seconds == [0.0, 0.0, 0.0]


def test_the_fleet_is_told_at_once_and_behind_each_renewal_that_worked():
    register, leases = SlowMembership(), Leases(failures=2)
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
