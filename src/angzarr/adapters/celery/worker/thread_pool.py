"""SteadyExecutor: the threads of a threads pool, which may be fewer than were asked for.

concurrent.futures puts a task in line, then starts a thread, and raises if there is none to be had:
another thread runs the task that whoever submitted it takes for refused.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, TypeVar

from angzarr.runtime.log_throttle import Seldom
from angzarr.runtime.machine_faults import is_machine_fault

T = TypeVar("T")

_log = logging.getLogger("angzarr.worker")

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
        self._seldom = Seldom()
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
