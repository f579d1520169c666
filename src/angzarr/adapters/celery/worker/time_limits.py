"""TimeLimits: soft and hard limits for tasks that run in the process of their own consumer.

One thread keeps the time; it begins with the first task that has a limit. A soft limit raises
SoftTimeLimitExceeded in the handler, and nowhere else: a limit that strikes between two steps waits
for the handler. A hard limit is told to the request, which settles it, and then ends the process.
Where the interpreter itself is stuck, the process's supervisor ends it by the `DeadlinePage`.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from billiard.einfo import ExceptionInfo
from billiard.exceptions import SoftTimeLimitExceeded, TimeLimitExceeded

from angzarr.delivery.async_runner import INTERRUPTER
from angzarr.supervisor.process_link import DeadlinePage

_log = logging.getLogger("angzarr.worker")

#: Seconds until a soft limit looks again for a handler that has not begun, or cannot be raised in.
_LOOKED_EVERY: Final = 0.05
#: What wakes the main thread out of a system call; no one else uses it.
WAKE: Final = signal.SIGRTMIN + 5
#: Seconds in which a run that can be let go of must end after its hard limit, or its process ends.
LET_GO_WITHIN: Final = 3.0


@dataclass(slots=True)
class _LimitedRun:
    """One task that runs under limits."""

    soft: float | None
    hard: float | None
    fail: Callable[[Any], object]
    tell: Callable[..., object]
    #: Raises an error in its handler; False: it is not in one now.
    strike: Callable[[type[Exception]], bool]
    #: Ends it alone, soon; None: it ends with its process only.
    let_go: Callable[[], object] | None
    hard_at: float = float("inf")
    #: Whether others settle it from here on, or it has ended.
    is_over: bool = False
    #: Whether it runs no more.
    has_left: bool = False


class TimeLimits:
    """Those of one process; *page* is what its supervisor reads, *end* ends the process."""

    def __init__(
        self,
        end: Callable[[str], object],
        page: DeadlinePage | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._end = end
        self._page = page
        self._now = monotonic
        self._due: list[tuple[float, int, _LimitedRun, Callable[[_LimitedRun], object]]] = []
        self._order = itertools.count()
        self._hard: dict[int, _LimitedRun] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    @contextmanager
    def watch(  # noqa: PLR0917 - what Celery gives, and how to end it
        self,
        soft: float | None,
        hard: float | None,
        fail: Callable[[Any], object],
        tell: Callable[..., object],
        strike: Callable[[type[Exception]], bool] | None = None,
        let_go: Callable[[], object] | None = None,
    ) -> Iterator[_LimitedRun]:
        """Watch the task that runs here, on this thread unless *strike* raises its errors.

        *fail* is called with the ExceptionInfo of a hard limit that passed, *tell* with whether a
        limit was soft and its seconds. After a hard limit the run is over: its end says nothing.
        Then *let_go* ends it alone. If that takes too long, or there is none, the process ends.
        """
        here = partial(INTERRUPTER.strike, threading.get_ident(), wake=WAKE)
        run = self._begin(_LimitedRun(soft, hard, fail, tell, strike or here, let_go))
        try:
            yield run
        finally:
            self._finish(run)

    def _begin(self, run: _LimitedRun) -> _LimitedRun:
        now = self._now()
        with self._changed:
            if run.soft:
                self._put(run.soft, run, self._strike_softly)
            if run.hard:
                run.hard_at = now + run.hard
                self._put(run.hard, run, self._strike_hard)
                self._hard[id(run)] = run
                self._show()
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._keep, name="angzarr-limits", daemon=True
                )
                self._thread.start()
            self._changed.notify()
        return run

    def _finish(self, run: _LimitedRun) -> None:
        with self._changed:
            run.is_over = run.has_left = True
            self._due = [entry for entry in self._due if entry[2] is not run]
            heapq.heapify(self._due)
            if self._hard.pop(id(run), None) is not None:
                self._show()

    def _put(self, after: float, run: _LimitedRun, step: Callable[[_LimitedRun], object]) -> None:
        heapq.heappush(self._due, (self._now() + after, next(self._order), run, step))

    def _show(self) -> None:
        if self._page is not None:
            nearest = min((run.hard_at for run in self._hard.values()), default=None)
            self._page.set(nearest)

    def _keep(self) -> None:
        while True:
            with self._changed:
                while not self._due or self._due[0][0] > self._now():
                    wait = self._due[0][0] - self._now() if self._due else None
                    self._changed.wait(wait)
                _, _, run, step = heapq.heappop(self._due)
            try:
                step(run)
            except Exception:  # noqa: BLE001 - the thread keeps the time of all others
                _log.exception("time_limit_broke")

    def _strike_softly(self, run: _LimitedRun) -> None:
        with self._changed:
            if run.is_over:
                return
            if not run.strike(SoftTimeLimitExceeded):
                self._put(_LOOKED_EVERY, run, self._strike_softly)
                return
        run.tell(True, run.soft)  # noqa: FBT003 - Celery's signature

    def _strike_hard(self, run: _LimitedRun) -> None:
        with self._changed:
            if run.is_over:
                return
            run.is_over = True
            if run.let_go is not None:
                self._put(LET_GO_WITHIN, run, self._end_with)
        run.fail(_raised(TimeLimitExceeded(run.hard)))
        run.tell(False, run.hard)  # noqa: FBT003 - Celery's signature
        if run.let_go is None:
            self._end_with(run)
        else:
            run.let_go()

    def _end_with(self, run: _LimitedRun) -> None:
        if not run.has_left:
            self._end(f"a task exceeded its hard time limit of {run.hard:g} s")


def _raised(error: Exception) -> Any:
    """*error* as Celery's requests take it: with the traceback that only a raise gives."""
    try:
        raise error
    except type(error):
        return ExceptionInfo()
