"""Child pipes: of a pool of processes, those that its event loop may watch.

A worker that is connected anew puts its pool into the loop again, as Celery noted it. Two of these
notes are of children that died just before:

* of one that died in the midst of a task, the number of its pipe for results. By then another
  child's pipe for tasks may have the number; the worker would take a part of a task out of it, and
  wait for the rest for ever;
* of one whose end was seen and who is not buried yet, that there is nothing to watch: the worker
  would end of it.
"""

from __future__ import annotations

from typing import Any

from celery.concurrency.asynpool import AsynPool


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
