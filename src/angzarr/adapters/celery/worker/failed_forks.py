"""Failed forks: a prefork pool that cannot replace a child now tries again, and forgets nothing.

billiard notes a child before it forks it. If the fork fails, that note has no process id, on which
the next look for dead children ends the worker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from celery.concurrency.asynpool import AsynPool

from angzarr.runtime.log_throttle import Seldom
from angzarr.runtime.machine_faults import is_machine_fault

_log = logging.getLogger("angzarr.worker")


def outlive_failed_forks(pool: AsynPool) -> None:
    """Let *pool* go on with the children it has; it looks twice a second whether one is missing.

    Its pipes stay for the next try. All names are billiard's and Celery's own: pinned by a test.
    """
    seldom = Seldom()

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
    """Undo what was noted of *child*, which was never forked."""
    pool._pool.remove(child)  # noqa: SLF001
    pool._waiting_to_start.discard(child)  # noqa: SLF001
    for queues, owner in pool._queues.items():  # noqa: SLF001
        if owner is child:
            pool._queues[queues] = None  # noqa: SLF001
