"""A worker on its fleet's register: told as little as will do, and never hurt by it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from angzarr.adapters.celery.worker.owner_lease import LEFT_ALONE, Membership
from angzarr.errors import StoreUnavailable
from angzarr.fleet import SAID_AGAIN, SAID_LIFE, Member
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
