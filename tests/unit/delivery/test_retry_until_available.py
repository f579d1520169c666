"""Patient with what is away, quick to notice a stop, deaf to time limits."""

from __future__ import annotations

import itertools
import logging
from datetime import timedelta
from types import SimpleNamespace

import pytest
from tests.hand_clock import seldom_by

from angzarr.delivery.retry_until_available import (
    LONGEST_WAIT,
    MOST_TRIES,
    NOTICE,
    RetryUntilAvailable,
    TryOnce,
)
from angzarr.errors import (
    BrokerUnavailable,
    ConfigurationError,
    DecodeError,
    DeliveryError,
    GivenBack,
    NotYet,
    StoreUnavailable,
    Unavailable,
    Unroutable,
)
from angzarr.resilience.idempotency import key_for


class Clock:
    """Counts what is slept; `at_sleep` happens during each sleep."""

    def __init__(self, world, at_sleep=lambda: None):
        self.world = world
        self.at_sleep = at_sleep
        self.slept = []

    def now(self):
        return self.world.clock.now()

    def sleep(self, span):
        self.slept.append(span)
        self.world.clock.sleep(span)
        self.at_sleep()


def failing(times, error=None, value="done"):
    errors = [error or StoreUnavailable("away")] * times

    def step():
        if errors:
            raise errors.pop()
        return value

    return step


def make_hold(clock, *, stopping=lambda: False, chance=0.5):
    return RetryUntilAvailable(
        clock=clock, chance=lambda: chance, stopping=stopping, seldom=seldom_by(clock)
    )


def delivery(event_id="e1", handler="h"):
    return SimpleNamespace(event=SimpleNamespace(id=event_id), key=key_for(handler, event_id))


def until_done(hold, step):
    return hold.until_done(step, what="do it", delivery=delivery())


def test_a_step_that_works_is_not_waited_for(world):
    clock = Clock(world)
    assert until_done(make_hold(clock), failing(0)) == "done"
    assert clock.slept == []


def test_the_wait_doubles_up_to_the_longest(world):
    clock = Clock(world)
    until_done(make_hold(clock), failing(12))
    assert sum(clock.slept, timedelta(0)) == timedelta(
        seconds=0.1 + 0.2 + 0.4 + 0.8 + 1.6 + 3.2 + 6 * LONGEST_WAIT.total_seconds()
    )


@pytest.mark.parametrize(("chance", "share"), [(0.0, 0.5), (0.999, 1.499)])
def test_waits_are_spread_so_that_a_fleet_does_not_come_back_as_one(world, chance, share):
    clock = Clock(world)
    until_done(make_hold(clock, chance=chance), failing(1))
    assert sum(clock.slept, timedelta(0)) == timedelta(milliseconds=100) * share


def test_a_stop_is_noticed_within_its_time(world):
    began = []
    clock = Clock(world)

    def stopping():
        stops = len(clock.slept) >= 20
        if stops and not began:
            began.append(clock.now())
        return stops

    with pytest.raises(GivenBack):
        until_done(make_hold(clock, stopping=stopping), failing(10**6))
    assert max(clock.slept) <= NOTICE
    assert clock.now() - began[0] <= NOTICE


def test_a_stopping_worker_tries_once_before_it_gives_back(world):
    hold = make_hold(Clock(world), stopping=lambda: True)
    assert until_done(hold, failing(0)) == "done"
    with pytest.raises(GivenBack):
        until_done(hold, failing(1))


@pytest.mark.parametrize("error", [RuntimeError("soft time limit"), MemoryError()])
def test_what_strikes_while_it_waits_does_not_end_the_hold(world, error):
    strikes = iter([None, error, error])

    def strike():
        if struck := next(strikes, None):
            raise struck

    assert until_done(make_hold(Clock(world, strike)), failing(5)) == "done"


def test_a_clock_set_back_makes_no_wait_longer(world):
    def set_back():
        world.clock.time -= timedelta(hours=1)

    clock = Clock(world, set_back)
    until_done(make_hold(clock), failing(2))
    assert len(clock.slept) == 2


def test_what_can_never_work_is_not_held(world):
    with pytest.raises(DeliveryError, match="never"):
        until_done(make_hold(Clock(world)), failing(1, DeliveryError("never")))


def kinds_of(error):
    return {error, *(kind for one in error.__subclasses__() for kind in kinds_of(one))}


#: All that is waited for without an end. What is none of these is bounded.
ABSENCES = [
    *(kind("away") for kind in sorted(kinds_of(Unavailable), key=str)),
    BrokerUnavailable("its queue is full", refused=True, passing=True),
    OSError("away"), ConnectionResetError(), TimeoutError(),
]  # fmt: skip
NONE_AWAY = [
    BrokerUnavailable("404", refused=True), KeyError("a-queue"), TypeError(), AttributeError(),
    RuntimeError(), AssertionError(), MemoryError(), ConfigurationError("?"), DecodeError("?"),
    Unroutable("?"),
]  # fmt: skip


@pytest.mark.parametrize("error", ABSENCES, ids=repr)
def test_an_absence_is_waited_for_however_long_it_lasts(world, error):
    assert until_done(make_hold(Clock(world)), failing(20 * MOST_TRIES, error)) == "done"
    tried = TryOnce(clock=Clock(world), chance=lambda: 0.5, stopping=lambda: False)
    for _ in range(20 * MOST_TRIES):
        with pytest.raises(NotYet):
            until_done(tried, failing(1, error))


@pytest.mark.parametrize("error", NONE_AWAY, ids=repr)
def test_what_no_waiting_helps_with_is_tried_some_times_and_passed_on(world, error):
    clock = Clock(world)
    assert until_done(make_hold(clock), failing(MOST_TRIES - 1, error)) == "done"
    began = clock.now()
    with pytest.raises(type(error)):
        until_done(make_hold(clock), failing(MOST_TRIES, error))
    assert clock.now() - began < timedelta(seconds=30)


@pytest.mark.parametrize("error", NONE_AWAY, ids=repr)
def test_where_nobody_waits_it_is_counted_over_the_tries_of_a_delivery(world, error):
    hold = TryOnce(clock=Clock(world), chance=lambda: 0.5, stopping=lambda: False)

    def trying(event_id, what="do it", handler="h"):
        return hold.until_done(failing(1, error), what=what, delivery=delivery(event_id, handler))

    for number in range(MOST_TRIES - 1):
        for other in ((f"other {number}",), ("e1", f"do {number}"), ("e1", "do it", "other")):
            with pytest.raises(NotYet):
                trying(*other)
        with pytest.raises(NotYet):
            trying("e1")
    with pytest.raises(type(error)):
        trying("e1")
    with pytest.raises(NotYet):  # it is forgotten once it was passed on
        trying("e1")


def test_where_nobody_waits_a_try_that_works_is_a_new_beginning(world):
    hold = TryOnce(clock=Clock(world), chance=lambda: 0.5, stopping=lambda: False)
    for _ in range(3 * MOST_TRIES):
        with pytest.raises(NotYet):
            until_done(hold, failing(1, KeyError("a-queue")))
        until_done(hold, failing(0))


def test_an_absence_does_not_count_towards_the_bound(world):
    errors = iter([KeyError("?"), StoreUnavailable("away")] * (MOST_TRIES - 1))

    def step():
        if error := next(errors, None):
            raise error
        return "done"

    assert until_done(make_hold(Clock(world)), step) == "done"


def test_the_end_of_the_process_is_not_held(world):
    with pytest.raises(KeyboardInterrupt):
        until_done(make_hold(Clock(world)), failing(1, KeyboardInterrupt()))


def test_a_long_hold_is_logged_once_a_minute_and_names_event_and_cause(world, caplog):
    caplog.set_level(logging.CRITICAL, "angzarr.delivery")
    until_done(make_hold(Clock(world)), failing(30))
    held = world.clock.now()
    minutes = (held - type(world)().clock.now()) // timedelta(minutes=1)
    assert 1 <= len(caplog.records) <= minutes + 1
    assert "e1" in caplog.text
    assert "do it" in caplog.text
    assert "away" in caplog.text


def test_one_hold_serves_many_steps(world):
    hold = make_hold(Clock(world))
    counted = itertools.count()
    assert [until_done(hold, lambda: next(counted)) for _ in range(3)] == [0, 1, 2]
