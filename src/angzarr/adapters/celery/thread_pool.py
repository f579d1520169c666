"""SteadyExecutor: the threads of a threads pool, which may be fewer than were asked for.

concurrent.futures puts a task in line, then starts a thread, and raises if there is none to be had:
another thread runs the task that whoever submitted it takes for refused.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from angzarr.machine_faults import is_machine_fault
from angzarr.seldom import Seldom

_log = logging.getLogger("angzarr.worker")

#: Seconds until another thread is asked for, after there was none.
ASKED_AGAIN_AFTER: Final = 1.0


class SteadyExecutor(ThreadPoolExecutor):
    """Goes on with the threads that it has. One at least is there from the first moment."""

    def __init__(self, most: int) -> None:
        super().__init__(max_workers=most, thread_name_prefix="angzarr-pool")
        self.most = most
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

    def _adjust_thread_count(self) -> None:
        """Start another thread if one is needed; what is in line waits for those there are."""
        if time.monotonic() < self._ask_at:
            return
        try:
            super()._adjust_thread_count()  # private: pinned by a test
        except RuntimeError as error:
            if not self._threads or not is_machine_fault(error):
                raise
            self._ask_at = time.monotonic() + ASKED_AGAIN_AFTER
            if self._seldom.now():
                _log.error(
                    "threads_short: %d of %d threads run, no more can be started (%s): raise this"
                    " worker's limit of pids, or lower its concurrency", self.has, self.most, error,
                )  # fmt: skip


def steady(pool: Any) -> SteadyExecutor:
    """Give Celery's *pool* of threads, in which nothing runs yet, a `SteadyExecutor`; return it."""
    pool.executor = made = SteadyExecutor(pool.limit)
    return made


def _begin() -> None:
    """Take a thread."""
