"""Repairs of Celery's pools: lost forks, missing threads, dead pipes, real sleeps, copied memory.

* billiard notes a child before it forks it. After a failed fork that note has no process id, and
  the next look for dead children would end the worker.
* concurrent.futures queues a task, then starts a thread, and raises if no thread is available.
  Another thread then runs a task that its submitter counts as refused.
* A worker that reconnects registers its pool with the loop again, by Celery's notes. Notes of dead
  children can point to another child's pipe, from which the worker would read for ever.
* gevent's patching imports Celery and kombu before it patches `time`. Their ``sleep`` is then the
  real one, which stops the whole worker between two tries to connect.
* The first collection of cycles in a child writes to each object that it shares with its parent,
  and so copies nearly all memory, some 25 MiB for each child.
"""

from __future__ import annotations

import gc
import importlib
import logging
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from types import BuiltinFunctionType
from typing import Any, Final, TypeVar

from amqp.exceptions import AMQPError
from celery.concurrency.asynpool import AsynPool
from celery.signals import worker_before_create_process
from kombu.exceptions import OperationalError

from angzarr.runtime.failures import LogThrottle, is_machine_fault

_log = logging.getLogger("angzarr.worker")

#: Names the receiver that runs before the first fork.
_MEMORY: Final = "angzarr-memory"
#: What a pool that runs tasks on this thread (solo) may raise, and no pool for want of anything.
_LOST: Final = (OSError, AMQPError, OperationalError)


def is_lost(error: Exception) -> bool:
    """True if *error*, which a pool raised, says that the connection is lost."""
    return isinstance(error, _LOST) and not is_machine_fault(error)


def share_memory_with_children() -> None:
    """Let the prefork pool of this process take its first child from memory that stays shared."""
    worker_before_create_process.connect(_freeze_memory, weak=False, dispatch_uid=_MEMORY)


def _freeze_memory(**_signal: Any) -> None:
    worker_before_create_process.disconnect(dispatch_uid=_MEMORY)
    if "cffi" in sys.modules:  # where it is, billiard uses it in each child
        with suppress(ImportError):
            importlib.import_module("cffi.cparser")
            importlib.import_module("_cffi_backend")
    gc.collect()
    gc.freeze()


def outlive_failed_forks(pool: AsynPool) -> None:
    """Let *pool* go on with the children it has; it looks twice a second whether one is missing.

    Its pipes stay for the next try. All names are billiard's and Celery's own: pinned by a test.
    """
    seldom = LogThrottle()

    def try_to(step: Callable[[], Any]) -> Any:
        try:
            return step()
        except (OSError, MemoryError) as error:
            if not is_machine_fault(error):
                raise
            if seldom.now():
                _log.error(
                    "child_not_started: %r, trying again: raise this worker's limits (pids, memory,"
                    " open files), or lower its concurrency", error,
                )  # fmt: skip
            return None

    def create_or_forget(number: int) -> Any:
        known = tuple(pool._pool)  # noqa: SLF001
        try:
            if all(owner is not None for owner in pool._queues.values()):  # noqa: SLF001
                pool._queues[pool.create_process_queues()] = None  # noqa: SLF001
            return AsynPool._create_worker_process(pool, number)  # noqa: SLF001
        except BaseException:
            for child in pool._pool[len(known) :]:  # noqa: SLF001
                _forget(pool, child)
            raise

    pool._create_worker_process = lambda number: try_to(lambda: create_or_forget(number))  # noqa: SLF001
    pool.maintain_pool = lambda: try_to(lambda: AsynPool.maintain_pool(pool))


def _forget(pool: Any, child: Any) -> None:
    """Undo the notes about *child*, which was never forked."""
    pool._pool.remove(child)  # noqa: SLF001
    pool._waiting_to_start.discard(child)  # noqa: SLF001
    for queues, owner in pool._queues.items():  # noqa: SLF001
        if owner is child:
            pool._queues[queues] = None  # noqa: SLF001


def spare_begun(pool: AsynPool) -> None:
    """Let a pool that shrinks end only children that were sent nothing.

    billiard ends those that have not said yet that they began, and may have begun.
    """

    def has_work(process: Any) -> bool:
        return any(
            process in (job._write_to, job._scheduled_for)  # noqa: SLF001 - Celery's own notes
            or process.pid in job.worker_pids()
            for job in tuple(pool._cache.values())  # noqa: SLF001
        )

    pool._worker_active = has_work  # noqa: SLF001 - pinned by a test


def pass_by_ending(pool: AsynPool) -> None:
    """Let a shrinking pool send nothing to the children that it is ending.

    They read no more. What Celery writes into their pipes all the same comes to another child only
    when they are dead: after a second at best, and never if one hangs on its way out.
    """

    def on_shrink(_number: int) -> None:
        for process in pool._pool:  # noqa: SLF001 - Celery's own notes
            if getattr(process, "_controlled_termination", False):
                pool._all_inqueues.discard(process.inqW_fd)  # noqa: SLF001 - pinned by a test

    pool.on_shrink = on_shrink


def watch_living(pool: AsynPool) -> None:
    """Let *pool* pass by dead children whenever it is put into an event loop."""

    def register(hub: Any) -> None:
        noted, living = pool._fileno_to_outq, list(pool._pool)  # noqa: SLF001 - pinned by a test
        for number, process in list(noted.items()):
            if process not in living:
                del noted[number]
        AsynPool.register_with_event_loop(pool, hub)

    def track(process: Any, hub: Any) -> None:
        if getattr(process, "_sentinel_poll", hub) is not None:
            AsynPool._track_child_process(pool, process, hub)  # noqa: SLF001 - pinned by a test

    pool.register_with_event_loop, pool._track_child_process = register, track  # noqa: SLF001


def keep_sent(task_pool: Any) -> None:
    """Let Celery's *task_pool* keep what it has sent to a child when it loses the broker.

    Celery forgets it unless the child has said that it began. The child runs it all the same, and
    its result says what is left to do.
    """
    pool, flush = task_pool._pool, task_pool.flush  # noqa: SLF001 - pinned by a test

    def flush_unsent() -> None:
        sent = [job for job in tuple(pool._cache.values()) if not job._accepted and job._write_to]  # noqa: SLF001
        for job in sent:
            job._accepted = True  # noqa: SLF001
        try:
            flush()
        finally:
            for job in sent:
                job._accepted = False  # noqa: SLF001

    task_pool.flush = flush_unsent


_THEIRS: Final = ("kombu", "celery", "amqp", "vine")


def patch_pauses() -> None:
    """Give modules that have the real ``sleep`` the patched one; nothing where none is patched."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in _THEIRS and _is_real(vars(module).get("sleep")):
            module.sleep = time.sleep  # type: ignore[attr-defined]


def _is_real(sleep: object) -> bool:
    """True if *sleep* is the interpreter's, and not what took its place."""
    real = isinstance(sleep, BuiltinFunctionType) and sleep.__module__ == "time"
    return real and sleep is not time.sleep


T = TypeVar("T")

#: Seconds until another thread is asked for, after there was none.
ASKED_AGAIN_AFTER: Final = 1.0


class _NoneIdle(threading.Semaphore):
    """Says that no thread is idle, which `SteadyExecutor` knows better.

    The semaphore of concurrent.futures is right only while each task that is put in line acquires
    it or starts a thread; one thread that cannot be had makes it tell of idle ones for ever.
    """

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:  # noqa: ARG002, FBT001, FBT002
        return False

    def release(self, n: int = 1) -> None:
        pass


class SteadyExecutor(ThreadPoolExecutor):
    """Goes on with the threads that it has. One at least is there from the first moment."""

    def __init__(self, most: int) -> None:
        super().__init__(max_workers=most, thread_name_prefix="angzarr-pool")
        self._idle_semaphore = _NoneIdle(0)  # private: pinned by a test
        self.most = most
        #: How many tasks wait in line or run; a cancelled one counts for ever, which does no harm.
        self._open = 0
        self._counting = threading.Lock()
        self._ask_at = float("-inf")
        self._seldom = LogThrottle()
        self.submit(_begin).result()  # raises here, where no message is in hand

    @property
    def has(self) -> int:
        """How many threads there are: as many as were needed so far."""
        return len(self._threads)

    @property
    def is_short(self) -> bool:
        """True if more were needed and could not be started."""
        return self._ask_at != float("-inf") and self.has < self.most

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Put *fn* in line. What raises here was not put there, and never runs."""
        return super().submit(self._run, fn, *args, **kwargs)

    def _run(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        try:
            return fn(*args, **kwargs)
        finally:
            with self._counting:
                self._open -= 1

    def _adjust_thread_count(self) -> None:
        """Start the threads that are needed; what is in line waits for those there are.

        Called once for each task, after it was put in line: no want of threads or memory may be
        raised from here while a thread is there that will run it.
        """
        try:
            with self._counting:
                self._open += 1
            self._grow()
        except Exception as error:
            if not self._threads or not is_machine_fault(error):
                raise
            self._do_without(error)

    def _grow(self) -> None:
        if time.monotonic() < self._ask_at:
            return
        for _ in range(min(self._open, self.most) - self.has):
            super()._adjust_thread_count()  # private: pinned by a test
        self._ask_at = float("-inf")

    def _do_without(self, error: Exception) -> None:
        try:
            self._ask_at = time.monotonic() + ASKED_AGAIN_AFTER
            if self._seldom.now():
                _log.error(
                    "threads_short: %d of %d threads run, no more can be started (%r): raise this"
                    " worker's limits (pids, memory), or lower its concurrency",
                    self.has, self.most, error,
                )  # fmt: skip
        except Exception:  # noqa: BLE001, S110 - no memory to say that there is none
            pass


def steady(pool: Any) -> SteadyExecutor:
    """Give Celery's *pool* of threads, in which nothing runs yet, a `SteadyExecutor`; return it."""
    pool.executor = made = SteadyExecutor(pool.limit)
    return made


def _begin() -> None:
    """Take a thread."""
