"""Soft and hard limits of tasks that run in their consumer's own process."""

from __future__ import annotations

import signal
import threading
import time

import pytest
from billiard.exceptions import SoftTimeLimitExceeded, TimeLimitExceeded

from angzarr.adapters.celery.worker import time_limits
from angzarr.adapters.celery.worker.time_limits import WAKE, TimeLimits
from angzarr.delivery.async_runner import INTERRUPTER
from angzarr.supervisor.process_link import DeadlinePage
from polling import wait_until


class Told:
    def __init__(self):
        self.failed, self.limits, self.ended = [], [], []

    def fail(self, info):
        self.failed.append(info.exception.exc)

    def tell(self, soft, seconds):
        self.limits.append((soft, seconds))


@pytest.fixture
def told():
    before = signal.signal(WAKE, INTERRUPTER.heed)
    yield Told()
    signal.signal(WAKE, before)
    INTERRUPTER.reset()


def test_a_soft_limit_is_raised_in_the_handler_and_told(told):
    limits = TimeLimits(told.ended.append)
    with (
        limits.watch(0.05, None, told.fail, told.tell),
        pytest.raises(SoftTimeLimitExceeded),
        INTERRUPTER,
    ):
        time.sleep(60)
    wait_until(lambda: told.limits == [(True, 0.05)], "it to be told")
    assert not told.failed + told.ended


def test_a_soft_limit_that_passes_before_the_handler_waits_for_it(told):
    limits = TimeLimits(told.ended.append)
    with limits.watch(0.01, None, told.fail, told.tell):
        threading.Event().wait(0.1)  # a step before the handler, which must not be struck
        assert not told.limits
        with pytest.raises(SoftTimeLimitExceeded), INTERRUPTER:
            time.sleep(60)


def test_a_hard_limit_fails_the_task_once_and_ends_the_process(told):
    limits = TimeLimits(told.ended.append)
    with limits.watch(None, 0.05, told.fail, told.tell) as run:
        wait_until(lambda: told.ended, "the end")
        assert run.is_over
    (error,) = told.failed
    assert isinstance(error, TimeLimitExceeded)
    assert told.limits == [(False, 0.05)]
    assert "0.05" in told.ended[0]


def test_a_task_that_ends_in_time_is_left_alone(told):
    limits = TimeLimits(told.ended.append)
    for _ in range(50):
        with limits.watch(0.3, 0.4, told.fail, told.tell), INTERRUPTER:
            pass
    with (
        limits.watch(0.05, None, told.fail, told.tell),
        pytest.raises(SoftTimeLimitExceeded),  # the first that is struck is the one that lasts
        INTERRUPTER,
    ):
        time.sleep(60)
    assert not told.failed + told.ended


def test_the_page_shows_the_nearest_hard_limit(told):
    page = DeadlinePage()
    limits = TimeLimits(told.ended.append, page)
    now = time.monotonic()
    assert not page.passed(now + 1e6)
    with limits.watch(None, 1000, told.fail, told.tell):
        with limits.watch(None, 100, told.fail, told.tell):
            assert page.passed(now + 150)
        assert not page.passed(now + 150)
        assert page.passed(now + 1100)
    assert not page.passed(now + 1e6)


def test_a_hard_limit_lets_go_of_a_run_that_can_be_left_alone(told):
    limits, let_go = TimeLimits(told.ended.append), threading.Event()
    with limits.watch(None, 0.05, told.fail, told.tell, lambda _error: True, let_go.set) as run:
        assert let_go.wait(60)
        assert run.is_over
    assert len(told.failed) == 1
    with limits.watch(0.05, None, told.fail, told.tell, told.ended.append):
        wait_until(lambda: told.ended, "later limits to be kept")
    assert told.ended == [SoftTimeLimitExceeded]


def test_a_run_that_does_not_end_when_it_is_let_go_of_ends_its_process(told, monkeypatch):
    monkeypatch.setattr(time_limits, "LET_GO_WITHIN", 0.05)
    limits, let_go = TimeLimits(told.ended.append), []
    with limits.watch(
        None, 0.05, told.fail, told.tell, lambda _error: True, lambda: let_go.append(1)
    ):
        wait_until(lambda: told.ended, "the end")
    assert (len(let_go), len(told.failed), len(told.ended)) == (1, 1, 1)
