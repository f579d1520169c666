"""Pools go on with the threads, children and pipes that they have."""

from __future__ import annotations

import errno
import gc
import os
import signal
import sys
import threading
import time
from types import SimpleNamespace

import pytest
from billiard.pool import RUN
from celery.concurrency.asynpool import AsynPool
from celery.concurrency.prefork import TaskPool
from celery.signals import worker_before_create_process
from kombu.asynchronous import Hub

from angzarr.adapters.celery.worker import pools as thread_pool
from angzarr.adapters.celery.worker.pools import (
    SteadyExecutor,
    keep_sent,
    outlive_failed_forks,
    patch_pauses,
    share_memory_with_children,
    watch_living,
)
from polling import wait_until


@pytest.fixture
def pool():
    made = AsynPool(2, threads=False)
    hub = Hub()
    made.register_with_event_loop(hub)
    outlive_failed_forks(made)
    outlive_failed_forks(made)  # as after a lost connection
    yield made
    made.terminate()
    hub.close()


def kill(child):
    os.kill(child.pid, signal.SIGKILL)
    wait_until(lambda: child.exitcode is not None)


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ENOMEM])
def test_a_fork_that_fails_leaves_no_trace_and_is_tried_again(pool, monkeypatch, caplog, number):
    living, dead = pool._pool
    fork = os.fork

    def fail():
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fork", fail)
    kill(dead)
    for _ in range(3):
        pool.maintain_pool()  # billiard's own would end the worker by the second
    assert pool._pool == [living]
    assert sorted(map(bool, pool._queues.values())) == [False, True], "its pipes wait for another"
    assert caplog.text.count("child_not_started") == 1
    monkeypatch.setattr(os, "fork", fork)
    pool.maintain_pool()
    assert len(pool._pool) == 2
    assert None not in pool._poolctrl


def test_an_error_that_is_no_want_of_anything_is_raised(pool, monkeypatch):
    def fail():
        raise OSError(errno.EPERM, "no")

    kill(pool._pool[0])
    monkeypatch.setattr(os, "fork", fail)
    with pytest.raises(PermissionError):
        pool.maintain_pool()


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


def test_who_has_the_real_sleep_gets_the_one_that_took_its_place(monkeypatch):
    real = time.sleep
    theirs = SimpleNamespace(sleep=real)
    own = SimpleNamespace(sleep=print)
    ours = SimpleNamespace(sleep=real)
    for name, module in {"kombu.x": theirs, "celery.x": own, "shop": ours}.items():
        monkeypatch.setitem(sys.modules, name, module)

    def green(seconds: float) -> None:
        """Let others go on."""

    patch_pauses()
    assert theirs.sleep is real, "nothing is patched here"
    monkeypatch.setattr(time, "sleep", green)
    try:
        patch_pauses()
        assert (theirs.sleep, own.sleep, ours.sleep) == (green, print, real)
    finally:
        monkeypatch.setattr(time, "sleep", real)
        for name, module in list(sys.modules.items()):
            if (
                name.startswith(("kombu", "celery", "amqp", "vine"))
                and vars(module).get("sleep") is green
            ):
                module.sleep = real


@pytest.fixture
def hub():
    hub = Hub()
    yield hub
    hub.close()


@pytest.fixture
def pipe():
    """Another child's pipe for tasks: it has the number that a dead child's for results had."""
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


@pytest.fixture
def asyn_pool(pipe):
    """A pool whose one child died in the midst of a task: no child of it lives."""
    asyn_pool = AsynPool.__new__(AsynPool)
    asyn_pool._pool, asyn_pool._cache, asyn_pool._queues = [], {}, {}
    asyn_pool._fileno_to_inq, asyn_pool._fileno_to_synq = {}, {}
    died = SimpleNamespace(dead=True, outqR_fd=pipe[0], _sentinel_poll=None)
    asyn_pool._fileno_to_outq = {pipe[0]: died}
    asyn_pool._all_inqueues, asyn_pool._busy_workers = set(), set()
    asyn_pool._waiting_to_start, asyn_pool._active_writes = set(), set()
    asyn_pool._result_handler = SimpleNamespace(
        register_with_event_loop=lambda _hub: None, handle_event=lambda _number: None
    )
    asyn_pool._timers, asyn_pool._registered_with_event_loop = {}, True
    asyn_pool._create_write_handlers = lambda _hub: None
    asyn_pool._create_timelimit_handlers = lambda _hub: None
    return asyn_pool


def test_the_number_of_a_dead_childs_pipe_is_not_read_from(asyn_pool, hub, pipe):
    watch_living(asyn_pool)
    watch_living(asyn_pool)  # each time that the worker is connected
    asyn_pool.register_with_event_loop(hub)
    assert pipe[0] not in hub.readers
    assert asyn_pool._fileno_to_outq == {}


def test_a_living_child_is_read_from(asyn_pool, hub, pipe):
    asyn_pool._pool = list(asyn_pool._fileno_to_outq.values())
    watch_living(asyn_pool)
    asyn_pool.register_with_event_loop(hub)
    assert pipe[0] in hub.readers


def test_celery_by_itself_reads_from_whatever_has_the_number_now(asyn_pool, hub, pipe):
    """If it forgets them one day, `child_pipes` can go."""
    asyn_pool.register_with_event_loop(hub)
    (dead,) = asyn_pool._fileno_to_outq.values()
    asyn_pool.on_process_down(dead)
    assert asyn_pool._fileno_to_outq
    assert pipe[0] in hub.readers


def test_a_child_whose_end_was_seen_is_passed_by_until_it_is_buried(asyn_pool, hub, pipe):
    asyn_pool._fileno_to_outq = {}
    asyn_pool._pool = [
        SimpleNamespace(_sentinel_poll=None),
        SimpleNamespace(_sentinel_poll=pipe[0]),
    ]
    watch_living(asyn_pool)
    asyn_pool.register_with_event_loop(hub)
    assert set(hub.readers) == {pipe[0]}


def test_celery_by_itself_would_end_the_worker_of_it(asyn_pool, hub):
    """If it does not one day, half of `child_pipes` can go."""
    asyn_pool._fileno_to_outq, asyn_pool._pool = {}, [SimpleNamespace(_sentinel_poll=None)]
    with pytest.raises(ValueError, match="file descriptor is None"):
        asyn_pool.register_with_event_loop(hub)


class Job:
    """A job of billiard's, in the cache of a pool."""

    def __init__(self, cache, name, *, accepted=False, write_to=None):
        self._accepted, self._write_to, self._cache, self._name = accepted, write_to, cache, name
        cache[name] = self

    def discard(self):
        del self._cache[self._name]


def test_what_was_sent_to_a_child_is_kept_when_the_connection_is_lost():
    """It runs in any case; what is only in line is forgotten."""
    cache: dict[str, Job] = {}
    child = SimpleNamespace(_is_alive=lambda: True, inqW_fd=7)
    Job(cache, "in line")
    sent = Job(cache, "sent", write_to=child)
    Job(cache, "begun", accepted=True, write_to=child)
    pool = SimpleNamespace(
        _state=RUN, _cache=cache, synack=False, outbound_buffer=[1], _active_writers=set(),
        _active_writes=set(), _busy_workers=set(), maintain_pool=lambda: None,
    )  # fmt: skip
    task_pool = SimpleNamespace(_pool=pool, flush=lambda: AsynPool.flush(pool))
    keep_sent(task_pool)
    task_pool.flush()
    assert set(cache) == {"sent", "begun"}
    assert not sent._accepted
    assert not pool.outbound_buffer
    assert callable(TaskPool.flush), "Celery calls what keep_sent takes the place of"


def test_a_first_child_shares_what_its_parent_has_made_so_far(request):
    """Frozen, no collection in the child writes to it, and so copies it."""
    request.addfinalizer(gc.unfreeze)
    share_memory_with_children()
    before = gc.get_freeze_count()
    worker_before_create_process.send(sender=None)
    frozen = gc.get_freeze_count()
    assert frozen > before + 1000
    worker_before_create_process.send(sender=None)  # a later child: once was enough
    assert gc.get_freeze_count() <= frozen
