"""The settle thread at the end of a worker: what is due is done, what is not goes back."""

from __future__ import annotations

import heapq
import random
import threading
import time

import pytest

from angzarr.adapters.celery import settle_thread
from angzarr.adapters.celery.settle_thread import SettleThread


@pytest.fixture
def thread():
    made = SettleThread()
    yield made
    made.stop()


def test_what_is_due_is_done_before_the_end_with_what_it_asks_for(thread):
    done = []

    def first():
        time.sleep(0.05)
        done.append("first")
        thread.submit(lambda: done.append("then"), what="then")

    thread.submit(first, what="first")
    thread.submit(lambda: done.append("later"), what="later", after=60)
    thread.finish(10)
    assert done == ["first", "then"]


def test_a_step_that_fails_is_not_waited_for_again_and_again(thread):
    def away():
        raise ConnectionError

    thread.submit(away, what="a letter")
    began = time.monotonic()
    thread.finish(10)
    assert time.monotonic() - began < 5


def test_a_step_that_hangs_is_waited_for_no_longer_than_allowed(thread):
    hangs = threading.Event()
    thread.submit(hangs.wait, what="a server that does not answer")
    began = time.monotonic()
    thread.finish(0.1)
    assert time.monotonic() - began < 5
    hangs.set()


def test_a_thread_that_was_never_needed_is_not_waited_for(thread):
    thread.finish(10)


def test_it_is_empty_once_nothing_waits_not_even_for_later():
    thread = SettleThread("test")
    assert thread.empty
    thread.submit(lambda: None, what="later", after=60)
    assert not thread.empty
    thread.stop()
    assert thread.empty


def no_memory(*_, **__):
    raise MemoryError


#: Whatever a thread does between a step that failed and its next try.
AFTER_A_FAILURE = {
    "log": lambda _: (settle_thread._log, "critical"),
    "pause": lambda _: (random, "random"),
    "line": lambda _: (heapq, "heappush"),
    "notice": lambda thread: (thread._changed, "notify_all"),
}


@pytest.mark.parametrize("lacks", AFTER_A_FAILURE.values(), ids=AFTER_A_FAILURE.keys())
def test_a_step_that_cannot_even_be_put_off_is_taken_again_and_ends_no_thread(thread, lacks):
    tries, done = [], threading.Event()
    scarce = pytest.MonkeyPatch()

    def step():
        tries.append(1)
        if len(tries) == 1:
            scarce.setattr(*lacks(thread), no_memory)
            raise MemoryError
        scarce.undo()
        done.set()

    try:
        thread.submit(step, what="a letter")
        # The log may fail for ever: it keeps no step from its next try.
        assert done.wait(20)
    finally:
        scarce.undo()
    assert thread._thread.is_alive()
    after = threading.Event()
    thread.submit(after.set, what="another")
    assert after.wait(20)
    thread.finish(20)
    assert thread.empty


@pytest.mark.parametrize(
    "lacks",
    [lambda _: (threading.Thread, "start"), lambda thread: (thread._changed, "notify_all")],
    ids=["thread", "notice"],
)
def test_what_could_not_be_submitted_is_not_taken_later(thread, monkeypatch, lacks):
    taken, done = [], threading.Event()
    with monkeypatch.context() as scarce:
        scarce.setattr(*lacks(thread), no_memory)
        with pytest.raises(MemoryError):
            thread.submit(lambda: taken.append(1), what="a message that goes back")
    thread.submit(done.set, what="another")
    assert done.wait(20)
    assert not taken


def test_a_thread_that_died_has_a_successor(thread, monkeypatch):
    with monkeypatch.context() as dead:
        dead.setattr(thread, "_run", lambda: None)
        thread.start()
        thread._thread.join(20)
    assert not thread._thread.is_alive()
    done = threading.Event()
    thread.submit(done.set, what="a letter")
    assert done.wait(20)
    assert thread._thread.is_alive()
