"""A pool that is connected anew reads from its living children and from nothing else."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest
from celery.concurrency.asynpool import AsynPool
from kombu.asynchronous import Hub

from angzarr.adapters.celery.child_pipes import forget_dead_pipes


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
    pool._fileno_to_outq = {pipe[0]: SimpleNamespace(dead=True, outqR_fd=pipe[0])}
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
    forget_dead_pipes(pool)
    forget_dead_pipes(pool)  # each time that the worker is connected
    pool.register_with_event_loop(hub)
    assert pipe[0] not in hub.readers
    assert pool._fileno_to_outq == {}


def test_a_living_child_is_read_from(pool, hub, pipe, monkeypatch):
    monkeypatch.setattr(pool, "_track_child_process", lambda *_: None)
    pool._pool = list(pool._fileno_to_outq.values())
    forget_dead_pipes(pool)
    pool.register_with_event_loop(hub)
    assert pipe[0] in hub.readers


def test_celery_by_itself_reads_from_whatever_has_the_number_now(pool, hub, pipe):
    """If it forgets them one day, `child_pipes` can go."""
    pool.register_with_event_loop(hub)
    (dead,) = pool._fileno_to_outq.values()
    pool.on_process_down(dead)
    assert pool._fileno_to_outq
    assert pipe[0] in hub.readers
