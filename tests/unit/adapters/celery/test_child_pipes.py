"""A pool that is connected anew watches its living children and nothing else."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest
from celery.concurrency.asynpool import AsynPool
from kombu.asynchronous import Hub

from angzarr.adapters.celery.worker.pools import watch_living


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
def pool(pipe):
    """A pool whose one child died in the midst of a task: no child of it lives."""
    pool = AsynPool.__new__(AsynPool)
    pool._pool, pool._cache, pool._queues = [], {}, {}
    pool._fileno_to_inq, pool._fileno_to_synq = {}, {}
    died = SimpleNamespace(dead=True, outqR_fd=pipe[0], _sentinel_poll=None)
    pool._fileno_to_outq = {pipe[0]: died}
    pool._all_inqueues, pool._busy_workers = set(), set()
    pool._waiting_to_start, pool._active_writes = set(), set()
    pool._result_handler = SimpleNamespace(
        register_with_event_loop=lambda _hub: None, handle_event=lambda _number: None
    )
    pool._timers, pool._registered_with_event_loop = {}, True
    pool._create_write_handlers = lambda _hub: None
    pool._create_timelimit_handlers = lambda _hub: None
    return pool


def test_the_number_of_a_dead_childs_pipe_is_not_read_from(pool, hub, pipe):
    watch_living(pool)
    watch_living(pool)  # each time that the worker is connected
    pool.register_with_event_loop(hub)
    assert pipe[0] not in hub.readers
    assert pool._fileno_to_outq == {}


def test_a_living_child_is_read_from(pool, hub, pipe):
    pool._pool = list(pool._fileno_to_outq.values())
    watch_living(pool)
    pool.register_with_event_loop(hub)
    assert pipe[0] in hub.readers


def test_celery_by_itself_reads_from_whatever_has_the_number_now(pool, hub, pipe):
    """If it forgets them one day, `child_pipes` can go."""
    pool.register_with_event_loop(hub)
    (dead,) = pool._fileno_to_outq.values()
    pool.on_process_down(dead)
    assert pool._fileno_to_outq
    assert pipe[0] in hub.readers


def test_a_child_whose_end_was_seen_is_passed_by_until_it_is_buried(pool, hub, pipe):
    pool._fileno_to_outq = {}
    pool._pool = [SimpleNamespace(_sentinel_poll=None), SimpleNamespace(_sentinel_poll=pipe[0])]
    watch_living(pool)
    pool.register_with_event_loop(hub)
    assert set(hub.readers) == {pipe[0]}


def test_celery_by_itself_would_end_the_worker_of_it(pool, hub):
    """If it does not one day, half of `child_pipes` can go."""
    pool._fileno_to_outq, pool._pool = {}, [SimpleNamespace(_sentinel_poll=None)]
    with pytest.raises(ValueError, match="file descriptor is None"):
        pool.register_with_event_loop(hub)
