"""The settle thread at the end of a worker: what is due is done, what is not goes back."""

from __future__ import annotations

import heapq
import threading
import time
from datetime import timedelta
from types import SimpleNamespace

import pytest

from angzarr.adapters.celery.worker import settle_thread
from angzarr.adapters.celery.worker.settle_thread import SettleThread
from angzarr.delivery.retry_until_available import MOST_TRIES
from angzarr.errors import NotYet, StoreUnavailable
from polling import wait_until


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
    thread.submit(lambda: done.append("later"), what="later", after=600)
    thread.finish(60)
    assert done == ["first", "then"]


def test_a_step_that_fails_is_not_waited_for_again_and_again(thread):
    def away():
        raise ConnectionError

    thread.submit(away, what="a letter")
    began = time.monotonic()
    thread.finish(600)
    assert time.monotonic() - began < 60


def test_a_step_that_hangs_is_waited_for_no_longer_than_allowed(thread):
    hangs = threading.Event()
    thread.submit(hangs.wait, what="a server that does not answer")
    thread.finish(0.1)  # ends, though that never does
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
    "pause": lambda _: (settle_thread, "chance"),
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
        assert done.wait(60)
    finally:
        scarce.undo()
    assert thread._thread.is_alive()
    after = threading.Event()
    thread.submit(after.set, what="another")
    assert after.wait(60)
    thread.finish(20)
    assert thread.empty


def test_what_could_not_be_submitted_is_not_taken_later(thread, monkeypatch):
    taken, done = [], threading.Event()
    with monkeypatch.context() as scarce:
        scarce.setattr(thread._changed, "notify_all", no_memory)
        with pytest.raises(MemoryError):
            thread.submit(lambda: taken.append(1), what="a message that goes back")
    thread.submit(done.set, what="another")
    assert done.wait(60)
    assert not taken


@pytest.fixture
def no_thread(monkeypatch):
    """While it holds, no thread can be started."""

    def refuse(_thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as scarce:
        scarce.setattr(threading.Thread, "start", refuse)
        yield scarce


def test_what_waits_for_a_thread_is_said_and_taken_once_there_is_one(thread, no_thread, caplog):
    assert thread.trouble() is None, "nothing was asked of it"
    done = threading.Event()
    thread.submit(done.set, what="a letter")
    thread.keep()
    assert thread.trouble().ended
    assert "settle_thread_not_started" in caplog.text
    assert "can't start new thread" in caplog.text
    no_thread.undo()
    thread.keep()
    assert done.wait(60)
    thread.finish(60)
    assert thread.trouble() is None


def test_its_first_start_says_what_stands_against_it(thread, no_thread):
    with pytest.raises(RuntimeError, match="can't start new thread"):
        thread.start()
    assert no_thread


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_died_has_a_successor_that_takes_what_was_in_hand(
    thread, monkeypatch, caplog
):
    tries, done = [], threading.Event()

    def step():
        tries.append(1)
        if len(tries) == 1:
            raise MemoryError
        done.set()

    with monkeypatch.context() as scarce:
        scarce.setattr(thread, "_put_off", no_memory)
        scarce.setattr(
            settle_thread, "time", SimpleNamespace(sleep=no_memory, monotonic=time.monotonic)
        )
        thread.submit(step, what="a letter")
        dead = thread._thread
        dead.join(60)
    assert not dead.is_alive()
    assert thread.trouble().ended
    assert not done.is_set()
    thread.keep()
    assert done.wait(60)
    assert "settle_thread_ended" in caplog.text
    thread.finish(60)
    assert thread.trouble() is None


def test_want_of_memory_is_said_while_it_lasts(thread):
    lacks, tried, done = [MemoryError()], threading.Event(), threading.Event()

    def step():
        if lacks:
            tried.set()
            raise lacks[0]
        done.set()

    thread.submit(step, what="a letter")
    assert tried.wait(60)
    wait_until(thread.trouble)
    assert not thread.trouble().ended
    lacks.clear()
    assert done.wait(60)
    thread.finish(60)
    assert thread.trouble() is None


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(settle_thread, "LONGEST_WAIT", timedelta(milliseconds=1))


@pytest.mark.parametrize("error", [KeyError("ours"), MemoryError(), TypeError()], ids=repr)
def test_what_no_waiting_helps_with_is_given_up_after_some_tries(thread, quick, error, caplog):
    tries, given_up = [], threading.Event()

    def step():
        tries.append(1)
        raise error

    def give_up():
        given_up.set()
        thread.submit(lambda: None, what="another")

    thread.submit(step, what="a letter", give_up=give_up)
    assert given_up.wait(60)
    thread.finish(60)
    assert len(tries) == MOST_TRIES
    assert "gave_up: a letter" in caplog.text
    assert thread.empty


@pytest.mark.parametrize(
    ("error", "give_up"),
    [(StoreUnavailable("away"), True), (NotYet("away"), True), (KeyError("ours"), False)],
    ids=repr,
)
def test_what_is_away_is_waited_for_and_so_is_what_cannot_be_given_up(
    thread, quick, error, give_up
):
    errors, given_up, done = [error] * (3 * MOST_TRIES), [], threading.Event()

    def step():
        if errors:
            raise errors.pop()
        done.set()

    thread.submit(step, what="a letter", give_up=(lambda: given_up.append(1)) if give_up else None)
    assert done.wait(60)
    assert not given_up
