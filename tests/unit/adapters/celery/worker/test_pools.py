"""A prefork pool outlives a child that cannot be forked: with billiard's own pool and children."""

from __future__ import annotations

import errno
import os
import signal

import pytest
from celery.concurrency.asynpool import AsynPool
from kombu.asynchronous import Hub

from angzarr.adapters.celery.worker.pools import outlive_failed_forks
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
