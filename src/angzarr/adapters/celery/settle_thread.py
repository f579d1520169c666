"""SettleThread: one thread of a worker's parent for what its event loop must not wait for (1).

Stores, brokers and dead-letter queues may take seconds or be away; the loop that talks to the
broker and to the children must go on meanwhile.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from angzarr.delivery.hold import FIRST_WAIT, LONGEST_WAIT
from angzarr.errors import NotYet
from angzarr.seldom import Seldom

_log = logging.getLogger("angzarr.worker")

#: Seconds that the end of a worker waits for the step that is being taken.
PATIENCE = 2.0


@dataclass(order=True, slots=True)
class _Job:
    due: float
    number: int
    step: Callable[[], object] = field(compare=False)
    what: str = field(compare=False)
    wait: float = field(compare=False, default=FIRST_WAIT.total_seconds())


class SettleThread:
    """Takes steps, each until it works; one that fails waits and keeps no other from its turn."""

    def __init__(self, name: str = "angzarr-settle") -> None:
        self._name = name
        self._jobs: list[_Job] = []
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._ended = False
        self._busy = False
        self._seldom = Seldom()

    def submit(self, step: Callable[[], object], *, what: str, after: float = 0.0) -> None:
        """Take *step* as soon as possible, but not before *after* seconds from now.

        It must be safe to repeat: it is taken again until it returns. Once this thread was
        stopped nothing is taken any more: the message that *step* is about goes back.
        """
        with self._changed:
            if self._ended:
                return
            due = time.monotonic() + after
            heapq.heappush(self._jobs, _Job(due, next(self._numbers), step, what))
            if self._thread is None:
                self.start()
            self._changed.notify_all()

    def start(self) -> None:
        """Start now what else starts with its first step; raises what stands against it."""
        with self._changed:
            if self._thread is None and not self._ended:
                thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                thread.start()
                self._thread = thread

    def finish(self, patience: float) -> None:
        """Wait until no step is due or being taken, *patience* seconds at most."""
        with self._changed:
            self._changed.wait_for(self._is_idle, patience)

    @property
    def empty(self) -> bool:
        """Whether no step is being taken or waits, also one that is not due."""
        with self._changed:
            return not self._busy and not self._jobs

    def _is_idle(self) -> bool:
        now = time.monotonic()
        return not self._busy and all(job.due > now for job in self._jobs)

    def stop(self) -> None:
        """Take no more steps; what is left undone is given back, since it is not acknowledged."""
        with self._changed:
            self._ended = True
            left, self._jobs = len(self._jobs), []
            self._changed.notify_all()
            thread, self._thread = self._thread, None
        if left:
            _log.warning("not_settled: %d messages go back to the broker", left)
        if thread is not None and thread is not threading.current_thread():
            thread.join(PATIENCE)

    def _run(self) -> None:
        while (job := self._next()) is not None:
            try:
                job.step()
            except BaseException as error:  # noqa: BLE001 - it runs users' hooks too, and must go on
                self._put_off(job, error)
            with self._changed:
                self._busy = False
                self._changed.notify_all()

    def _next(self) -> _Job | None:
        """Return the next job once it is due, None at the end."""
        with self._changed:
            while not self._ended:
                left = self._jobs[0].due - time.monotonic() if self._jobs else None
                if left is not None and left <= 0:
                    self._busy = True
                    return heapq.heappop(self._jobs)
                self._changed.wait(left)
            return None

    def _put_off(self, job: _Job, error: BaseException) -> None:
        if not isinstance(error, NotYet):  # who raised that has said so
            self._report(job, error)
        pause = job.wait * (0.5 + random.random())  # noqa: S311 - spreads load, keeps no secret
        job.wait = min(job.wait * 2, LONGEST_WAIT.total_seconds())
        job.due = time.monotonic() + pause
        with self._changed:
            if not self._ended:
                heapq.heappush(self._jobs, job)

    def _report(self, job: _Job, error: BaseException) -> None:
        if not self._seldom.now():
            return
        _log.critical(
            "holding %s: it could not be settled, trying again: %r", job.what, error,
            exc_info=None if isinstance(error, OSError) else error,
        )  # fmt: skip
