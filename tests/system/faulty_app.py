"""road_app in a process whose machine fails it: as a flag file says, or from the beginning.

``ROAD_FAULTS`` names a folder. While it has a file of a fault's name, that fault strikes.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace

from celery.concurrency.thread import TaskPool
from celery.signals import task_prerun, task_received
from road_app import PREFIX, Thing, add, app, handle

from angzarr.adapters.celery.worker import request, settle_thread
from angzarr.adapters.celery.worker.settle_thread import SettleThread

__all__ = ["PREFIX", "Thing", "add", "app", "handle"]

_FAULTS = Path(os.environ.get("ROAD_FAULTS", "/nonexistent"))
#: How many threads a threads pool can have.
_MOST_THREADS = int(os.environ.get("ROAD_MOST_THREADS", "1000"))


def _strikes(fault: str) -> bool:
    return (_FAULTS / fault).exists()


_start_thread, _fork, _read = threading.Thread.start, os.fork, request.consumed_from


def _start(thread: threading.Thread) -> None:
    if thread.name == "angzarr-settle" and _strikes("settle"):
        raise RuntimeError("can't start new thread")
    pooled = [one for one in threading.enumerate() if "pool" in one.name.lower()]
    if "pool" in thread.name.lower() and len(pooled) >= _MOST_THREADS:
        raise RuntimeError("can't start new thread")
    _start_thread(thread)


def _fork_or_fail() -> int:
    if _strikes("fork"):
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    return _fork()


def _read_or_fail(message: object) -> object:
    if _strikes("memory"):
        raise MemoryError
    if _strikes("bug"):
        raise RuntimeError("nobody foresaw this")
    return _read(message)


def _apply_or_fail(pool: TaskPool, *args: object, **options: object) -> object:
    if _strikes("pool"):
        raise RuntimeError("cannot schedule new futures after shutdown")
    return _apply(pool, *args, **options)


def _next_or_die(thread: SettleThread) -> object:
    """Take a step in hand, and end the thread with it there, as want of memory might."""
    job = _next(thread)
    if _strikes("settle"):
        raise MemoryError
    return job


def _sleep_or_die(seconds: float) -> None:
    if _strikes("settle"):
        raise MemoryError
    time.sleep(seconds)


_apply, _next = TaskPool.on_apply, SettleThread._next
if "ROAD_FAULTS" in os.environ:  # a worker, and not the test that publishes
    threading.Thread.start, os.fork = _start, _fork_or_fail
    request.consumed_from, TaskPool.on_apply = _read_or_fail, _apply_or_fail
    SettleThread._next = _next_or_die
    settle_thread.time = SimpleNamespace(monotonic=time.monotonic, sleep=_sleep_or_die)


def _break_log(how: str) -> None:
    """Put what takes no line where the log was: a full disk, or a pipe that nobody reads."""
    if how == "full":
        log = os.open("/dev/full", os.O_WRONLY)
    else:
        read, log = os.pipe()
        os.close(read)
    os.dup2(log, 1)
    os.dup2(log, 2)


_broken: set[int] = set()


@task_received.connect
@task_prerun.connect
def _break_once(**_signal: object) -> None:
    """Break the log of this process: the parent's, and each child's."""
    if (how := os.environ.get("ROAD_LOG")) and os.getpid() not in _broken:
        _broken.add(os.getpid())
        _break_log(how)
