"""Ending pools: how what runs in a pool is stopped, one way for each kind of pool.

Child pipes: of a pool of processes, those that its event loop may watch.

A worker that is connected anew puts its pool into the loop again, as Celery noted it. Two of these
notes are of children that died just before:

* of one that died in the midst of a task, the number of its pipe for results. By then another
  child's pipe for tasks may have the number; the worker would take a part of a task out of it, and
  wait for the rest for ever;
* of one whose end was seen and who is not buried yet, that there is nothing to watch: the worker
  would end of it.

Green pauses: kombu's pauses let the other greenlets of a worker go on.

gevent looks at all objects while it patches, Celery's proxies among them, which import Celery and
kombu before `time` is patched: their ``sleep`` is the real one then. While such a worker waits
between two tries to connect it stands still as a whole, and its owner lease ends.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from contextlib import suppress
from types import BuiltinFunctionType
from typing import Any, Final

from celery.concurrency.asynpool import AsynPool
from celery.worker import state

from angzarr.adapters.celery.shutdown.drain_loop import Turning, in_seconds
from angzarr.delivery.run_coroutine import cut_shared

_log = logging.getLogger("angzarr.worker")

#: Seconds that a handler which was cut gets to end, before its process is killed.
CUT_WITHIN = 0.7
#: Seconds that a killed child takes to be dead, at most.
DEAD_WITHIN = 0.5
#: Seconds that idle children get to write down facts and close their connections.
CHILDREN_END_WITHIN = 0.7


def running() -> list[Any]:
    """Return the requests whose tasks run."""
    return [request for request in tuple(state.active_requests) if not request.acknowledged]


class Pool:
    """Any pool: its tasks end by themselves."""

    #: Whether handlers go on in this process although their messages were given back.
    leaves_running = False

    def __init__(self, worker: Any, turning: Turning) -> None:
        self.worker = worker
        self.turning = turning

    def begin_no_more(self) -> None:
        """Begin nothing that waits in line; afterwards `state.active_requests` is complete."""

    def cut(self) -> None:
        """End what runs."""

    def end(self) -> None:
        """End the pool itself, in which nothing runs any more."""

    def kill(self) -> None:
        """End all processes of the pool at once; called from any thread."""

    def _abandon(self) -> int:
        """Give back what runs all the same, its claims freed before; return how much it is."""
        left = running()
        for request in left:
            state.task_ready(request)
            request.give_back()
        return len(left)

    def _wait(self, seconds: float) -> bool:
        return self.turning.until(lambda: not running(), in_seconds(seconds))


class Threads(Pool):
    """Threads cannot be ended: their messages and claims are given back, and they are left."""

    def begin_no_more(self) -> None:
        """Let no thread take up another task."""
        self.worker.pool.executor.shutdown(wait=False, cancel_futures=True)

    def cut(self) -> None:
        """Cancel async handlers, and give back what goes on all the same."""
        cut_shared()
        if not self._wait(CUT_WITHIN):
            self.leaves_running = True
            left = self._abandon()
            _log.warning("left_running: %d handlers, which end with this process", left)


class Greenlets(Pool):
    """Greenlets are killed one by one."""

    def cut(self) -> None:
        """Kill the greenlet of each request."""
        for request in running():
            self.worker.pool.terminate_job(request.worker_pid)
        if not self._wait(CUT_WITHIN):
            self._abandon()


class Prefork(Pool):
    """Children are asked to cut their handlers, then killed; their claims are freed after that."""

    @property
    def billiard(self) -> Any:
        """The pool of billiard's, None once it is gone."""
        return self.worker.pool._pool  # noqa: SLF001 - Celery has no door to it

    def begin_no_more(self) -> None:
        """Drop what no child was sent, and read all that children have said so far.

        A child that says it has begun after this finds that the worker stops, and begins nothing.
        """
        pool = self.billiard
        if self.worker.semaphore is not None:
            self.worker.semaphore.clear()
        if not isinstance(pool, AsynPool):
            return
        for job in tuple(pool.outbound_buffer):
            job.discard()
        pool.outbound_buffer.clear()
        self.turning.until(lambda: not self._unread(), in_seconds(1))

    def _unread(self) -> bool:
        pipes = [process.outq._reader for process in self.billiard._pool]  # noqa: SLF001
        return any(pipe.poll(0) for pipe in pipes)

    def cut(self) -> None:
        """Signal the children that run something, and kill those that do not heed it.

        A dead child's claim is freed where every dead child's is: when its death is noticed.
        """
        self.worker.pool.close()  # or every dead child would be replaced
        self._signal(signal.SIGTERM)
        if self._wait(CUT_WITHIN):
            return
        self._signal(signal.SIGKILL)
        if not self._wait(DEAD_WITHIN):
            _log.error("children_not_dead: their messages come back with the connection")

    def _signal(self, number: signal.Signals) -> None:
        for pid in {request.worker_pid for request in running()}:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _wait(self, seconds: float) -> bool:
        return self.turning.until(lambda: self._bury() and not running(), in_seconds(seconds))

    def _bury(self) -> bool:
        """Notice the dead; billiard does so only while it replaces them."""
        self.billiard._join_exited_workers()  # noqa: SLF001 - pinned by a test
        return True

    def end(self) -> None:
        """Let idle children end: they write down facts and close their connections.

        Celery's own way can take half a minute: it stops reading its children's pipes once it
        waits for no result, while they wait until all they said was read (docs/adr/0014).
        """
        pool = self.billiard
        self.worker.pool.close()
        if not isinstance(pool, AsynPool):
            return
        pool._stop_task_handler(pool._task_handler)  # noqa: SLF001 - a last word to each child
        self._wait_for_children(CHILDREN_END_WITHIN)
        self.kill()
        self._wait_for_children(DEAD_WITHIN)
        if not pool._pool:  # noqa: SLF001
            self.worker.pool._pool = None  # noqa: SLF001 - Celery would wait half a second for it

    def _wait_for_children(self, seconds: float) -> None:
        self.turning.until(
            lambda: self._bury() and not self.billiard._pool,  # noqa: SLF001
            in_seconds(seconds),
        )

    def kill(self) -> None:
        """Kill every child that is left."""
        pool = self.billiard
        for process in tuple(pool._pool) if pool is not None else ():  # noqa: SLF001
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)


KINDS: dict[str, type[Pool]] = {
    "prefork": Prefork,
    "threads": Threads,
    "gevent": Greenlets,
    "eventlet": Greenlets,
}


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
    """Let a pool that shrinks send nothing to the children that it has told to end.

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


_THEIRS: Final = ("kombu", "celery", "amqp", "vine")


def mend() -> None:
    """Give modules that have the real ``sleep`` the patched one; nothing where none is patched."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in _THEIRS and _is_real(vars(module).get("sleep")):
            module.sleep = time.sleep  # type: ignore[attr-defined]


def _is_real(sleep: object) -> bool:
    """Tell whether *sleep* is the interpreter's, and not what took its place."""
    real = isinstance(sleep, BuiltinFunctionType) and sleep.__module__ == "time"
    return real and sleep is not time.sleep
