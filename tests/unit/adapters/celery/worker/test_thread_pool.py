"""A threads pool goes on with the threads that it can have."""

from __future__ import annotations

import threading
import time

import pytest

from angzarr.adapters.celery.worker import pools as thread_pool
from angzarr.adapters.celery.worker.pools import SteadyExecutor


@pytest.fixture
def limit(monkeypatch):
    """How many threads of a pool there can be."""
    most, start = {"most": 3}, threading.Thread.start

    def start_or_fail(thread):
        alive = [one for one in threading.enumerate() if one.name.startswith("angzarr-pool")]
        if len(alive) >= most["most"]:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_or_fail)
    return most


@pytest.fixture
def make():
    made = []

    def make(most):
        made.append(SteadyExecutor(most))
        return made[-1]

    yield make
    for one in made:
        one.shutdown()


def test_what_is_submitted_runs_once_on_the_threads_there_are(limit, make, caplog):
    executor, ran = make(20), []
    gate = threading.Event()

    def work(n):
        gate.wait(60)
        ran.append(n)

    futures = [executor.submit(work, n) for n in range(40)]
    assert (executor.has, executor.is_short) == (3, True)
    gate.set()
    for future in futures:
        future.result(60)
    assert sorted(ran) == list(range(40))
    assert caplog.text.count("threads_short: 3 of 20 threads run") == 1


def test_it_grows_again_once_it_can(limit, make, monkeypatch):
    monkeypatch.setattr(thread_pool, "ASKED_AGAIN_AFTER", 0.0)
    executor, gate = make(5), threading.Event()
    futures = [executor.submit(gate.wait, 10) for _ in range(10)]
    assert executor.has == 3
    limit["most"] = 5
    futures += [executor.submit(gate.wait, 10) for _ in range(2)]
    assert (executor.has, executor.is_short) == (5, False)
    gate.set()
    for future in futures:
        future.result(60)


def test_a_pool_without_any_thread_is_refused_before_a_message_is_in_hand(limit):
    limit["most"] = 0
    with pytest.raises(RuntimeError, match="can't start new thread"):
        SteadyExecutor(5)


def test_it_takes_one_thread_more_only_if_none_is_idle(make):
    executor = make(5)
    for _ in range(5):
        executor.submit(time.time).result(60)
    assert executor.has == 1


def test_after_a_shortage_it_grows_to_its_size_and_runs_as_many_tasks_at_once(
    limit, make, monkeypatch
):
    monkeypatch.setattr(thread_pool, "ASKED_AGAIN_AFTER", 3600.0)
    limit["most"] = 1
    executor, done = make(5), []
    for future in [executor.submit(done.append, n) for n in range(40)]:
        future.result(60)
    assert (executor.has, executor.is_short) == (1, True)
    limit["most"], executor._ask_at = 5, 0.0
    together = threading.Barrier(5)
    for future in [executor.submit(together.wait, 10) for _ in range(5)]:
        future.result(60)
    assert (executor.has, executor.is_short) == (5, False)


def test_the_first_task_after_a_shortage_gets_all_threads_that_what_waits_needs(
    limit, make, monkeypatch
):
    monkeypatch.setattr(thread_pool, "ASKED_AGAIN_AFTER", 3600.0)
    limit["most"] = 1
    executor, together = make(5), threading.Barrier(5)
    futures = [executor.submit(together.wait, 10) for _ in range(4)]
    limit["most"], executor._ask_at = 5, 0.0
    futures.append(executor.submit(together.wait, 10))
    for future in futures:
        future.result(60)
    assert executor.has == 5


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't start new thread")])
@pytest.mark.parametrize("log_fails", [False, True])
def test_what_a_thread_will_run_is_not_refused_for_want_of_another(
    make, monkeypatch, error, log_fails
):
    executor, gate = make(5), threading.Event()

    def fail(*_, **__):
        raise error

    with monkeypatch.context() as scarce:
        scarce.setattr(threading.Thread, "start", fail)
        if log_fails:
            scarce.setattr(thread_pool._log, "error", fail)
        futures = [executor.submit(gate.wait, 10) for _ in range(3)]
    gate.set()
    assert [future.result(60) for future in futures] == [True] * 3
    assert executor.has == 1
