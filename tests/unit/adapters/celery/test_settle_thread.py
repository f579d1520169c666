"""The settle thread at the end of a worker: what is due is done, what is not goes back."""

from __future__ import annotations

import threading
import time

import pytest

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
