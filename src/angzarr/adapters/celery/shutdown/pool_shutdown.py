"""Stops the tasks that run in a pool, in one way for each kind of pool.

Meanwhile `DrainLoop` keeps Celery's loop going: it reads results, sends acknowledgements, and
answers heartbeats and remote control, but consumes no more.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from celery.concurrency.asynpool import AsynPool
from celery.worker import state

from angzarr.delivery.async_runner import interrupt_shared

_log = logging.getLogger("angzarr.worker")

if TYPE_CHECKING:
    from typing import Self

#: The longest that one turn waits for something to happen (seconds).
LONGEST_TURN = 0.05


class DrainLoop:
    """Turns a worker's event loop, or waits where there is none (gevent, some transports)."""

    def __init__(self, worker: Any) -> None:
        self._worker = worker
        self._hub = worker.hub
        self._loop: Any = None
        self._alarm: Any = None
        self._told = False

    def __enter__(self) -> Self:
        """Begin; where the connection was lost the pool's pipes are watched again."""
        if self._hub is not None:
            self._alarm = self._hub.call_repeatedly(LONGEST_TURN, _nothing)
            if self._worker.consumer.connection is None:
                self._watch_pool()
        return self

    def __exit__(self, *_error: object) -> None:
        """End."""
        if self._alarm is not None:
            self._alarm.cancel()

    def until(self, truth: Callable[[], bool], deadline: Callable[[], float]) -> bool:
        """Turn until *truth* holds; return False if the deadline (monotonic) comes first."""
        while not truth():
            if time.monotonic() >= deadline():
                return False
            self.turn()
        return True

    def turn(self) -> None:
        """Take one turn; what fails in it is logged once."""
        try:
            if self._hub is None:
                self._wait()
                return
            if self._loop is None:
                self._loop = self._hub.create_loop()
            next(self._loop)
        except StopIteration:
            self._loop = None
        except SystemExit:  # a second order to stop, by remote control
            self._loop = None
        except Exception as error:  # noqa: BLE001 - the broker is away; what runs goes on
            self._loop = None
            self._lost(error)

    def settle(self) -> None:
        """Run the steps that were put off until the next turns, acknowledgements first."""
        if self._hub is None:
            self._worker.consumer.perform_pending_operations()
            return
        for _ in range(2):  # what one of them puts off is done by the second
            done = threading.Event()
            self._hub.call_soon(done.set)
            self.until(done.is_set, in_seconds(1))

    def _wait(self) -> None:
        consumer = self._worker.consumer
        consumer.perform_pending_operations()
        if consumer.connection is not None:
            with suppress(TimeoutError):
                consumer.connection.drain_events(timeout=LONGEST_TURN)
        time.sleep(LONGEST_TURN / 5)

    def _lost(self, error: Exception) -> None:
        if not self._told:
            self._told = True
            _log.warning("connection_lost_while_stopping: what runs goes on (%r)", error)
        time.sleep(LONGEST_TURN / 5)
        if self._hub is not None:
            self._hub.reset()
            self._watch_pool()

    def _watch_pool(self) -> None:
        try:
            self._worker.pool.register_with_event_loop(self._hub)
        except Exception:  # noqa: BLE001 - without it what runs is cut at the deadline
            _log.exception("pool_not_watched")


def in_seconds(seconds: float) -> Callable[[], float]:
    """A deadline for `DrainLoop.until`."""
    end = time.monotonic() + seconds
    return lambda: end


def _nothing() -> None:
    """Wake the loop."""


#: Seconds that a handler which was cut gets to end, before its process is killed.
CUT_WITHIN = 0.7
#: Seconds that a killed child takes to be dead, at most.
DEAD_WITHIN = 0.5
#: Seconds that idle children get to write down facts and close their connections.
CHILDREN_END_WITHIN = 0.7


def running() -> list[Any]:
    """The requests whose tasks run."""
    return [request for request in tuple(state.active_requests) if not request.acknowledged]


class PoolShutdown:
    """Any pool: its tasks end by themselves."""

    #: Whether handlers go on in this process although their messages were given back.
    leaves_running = False

    def __init__(self, worker: Any, drain_loop: DrainLoop) -> None:
        self.worker = worker
        self.drain_loop = drain_loop

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
        return self.drain_loop.until(lambda: not running(), in_seconds(seconds))


class ThreadsShutdown(PoolShutdown):
    """Threads cannot be ended: their messages and claims are given back, and they are left."""

    def begin_no_more(self) -> None:
        """Let no thread take up another task."""
        self.worker.pool.executor.shutdown(wait=False, cancel_futures=True)

    def cut(self) -> None:
        """Cancel async handlers, and give back what goes on all the same."""
        interrupt_shared()
        if not self._wait(CUT_WITHIN):
            self.leaves_running = True
            left = self._abandon()
            _log.warning("left_running: %d handlers, which end with this process", left)


class CoroutinesShutdown(ThreadsShutdown):
    """Coroutines are cancelled; sync tasks beside them are treated as in threads."""

    def begin_no_more(self) -> None:
        """Let neither the loop nor a thread take up another task."""
        self.worker.pool.greenlets.close()
        super().begin_no_more()


class GreenletsShutdown(PoolShutdown):
    """Greenlets are killed one by one."""

    def cut(self) -> None:
        """Kill the greenlet of each request."""
        for request in running():
            self.worker.pool.terminate_job(request.worker_pid)
        if not self._wait(CUT_WITHIN):
            self._abandon()


class PreforkShutdown(PoolShutdown):
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
        self.drain_loop.until(lambda: not self._unread(), in_seconds(1))

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
        return self.drain_loop.until(lambda: self._bury() and not running(), in_seconds(seconds))

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
        self.drain_loop.until(
            lambda: self._bury() and not self.billiard._pool,  # noqa: SLF001
            in_seconds(seconds),
        )

    def kill(self) -> None:
        """Kill every child that is left."""
        pool = self.billiard
        for process in tuple(pool._pool) if pool is not None else ():  # noqa: SLF001
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)


POOL_SHUTDOWNS: dict[str, type[PoolShutdown]] = {
    "prefork": PreforkShutdown,
    "threads": ThreadsShutdown,
    "coroutines": CoroutinesShutdown,
    "gevent": GreenletsShutdown,
    "eventlet": GreenletsShutdown,
}
