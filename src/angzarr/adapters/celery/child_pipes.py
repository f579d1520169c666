"""Child pipes: of a pool of processes, those that its event loop may read from.

Celery keeps a note of the pipe of a child that died in the midst of a task. When a worker is
connected anew, it reads from all that are noted, by their numbers; by then the number may be that
of the pipe from which another child takes its tasks. The worker would take a part of a task out of
it, and wait for the rest for ever.
"""

from __future__ import annotations

from typing import Any

from celery.concurrency.asynpool import AsynPool


def forget_dead_pipes(pool: AsynPool) -> None:
    """Let *pool* forget the pipes of dead children each time it is put into an event loop."""
    register = pool.register_with_event_loop
    if getattr(register, "forgets", False):
        return

    def register_living(hub: Any) -> None:
        noted, living = pool._fileno_to_outq, list(pool._pool)  # noqa: SLF001 - pinned by a test
        for number, process in list(noted.items()):
            if process not in living:
                del noted[number]
        register(hub)

    register_living.forgets = True  # type: ignore[attr-defined]
    pool.register_with_event_loop = register_living
