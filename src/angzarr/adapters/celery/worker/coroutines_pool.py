"""CoroutinesPool: many async tasks at once on the thread of one event loop (`--coroutines`).

All other tasks run on a few threads beside it. So do batches, and ordered handlers: their lanes may
hold a transaction.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from celery.backends.base import DisabledBackend
from celery.concurrency.base import BasePool

from angzarr.adapters.celery.worker.batch_job import run_batch
from angzarr.adapters.celery.worker.delivery_greenlets import DeliveryGreenlet, DeliveryGreenlets
from angzarr.adapters.celery.worker.limited_pools import TaskLimits
from angzarr.adapters.celery.worker.loop_watch import LoopWatch
from angzarr.adapters.celery.worker.pools import SteadyExecutor
from angzarr.adapters.celery.worker.runtime import runtime_of
from angzarr.adapters.celery.worker.task_request import disown_stacks, own_stacks
from angzarr.delivery.async_runner import begin_shared
from angzarr.runtime.cooperative import call_blocking
from angzarr.runtime.processes import PeriodicThread

#: Threads for calls of deliveries on the loop that block: to stores, brokers and dead letters.
CALL_THREADS: Final = 8
#: Objects made between two looks of the garbage collector. By its default it looks through all open
#: deliveries again and again, which takes a sixth of the processor time and finds nothing.
ALLOCATIONS: Final = 50_000


class CoroutinesPool(BasePool):
    """Runs at most `limit` async tasks at once, and as many others as it has threads for them."""

    name = "coroutines"
    keeps_limits = True
    body_can_be_buffer = True
    signal_safe = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._limits = TaskLimits(self)
        self._runtime = runtime_of(self.app)
        process, loop = self._runtime.supervised, begin_shared()
        assert process is not None  # noqa: S101 - only `angzarr worker` has this pool
        self.executor = SteadyExecutor(process.sync_threads)
        self._callers = SteadyExecutor(CALL_THREADS)
        self.greenlets = DeliveryGreenlets(loop, self._callers, self.limit)
        watch = LoopWatch(loop, process.loop_blocked_after, process.end)
        self._watch = PeriodicThread("angzarr-loop-watch", lambda _stopping: watch)
        self._runtime.movement.coroutines = watch
        store_results_in_threads(self.app)

    def on_start(self) -> None:
        """Watch the loop, and let the garbage collector look less often."""
        first, *others = gc.get_threshold()
        if first:  # 0: the app has turned it off
            gc.set_threshold(max(first, ALLOCATIONS), *others)
        self._watch.start()

    def register_with_event_loop(self, hub: Any) -> None:
        """Begin together what one turn of *hub* brings."""
        self.greenlets.feed(hub)

    def flush(self) -> None:
        """Begin what is in line: Celery's loop has lost its broker, and may not turn for long."""
        self.greenlets.wake()

    def on_stop(self) -> None:
        """End the threads once what runs in them has ended."""
        self._watch.end()
        self.greenlets.close()
        self.executor.shutdown(cancel_futures=True)
        self._callers.shutdown()

    def on_apply(
        self,
        target: Any,
        args: Any = None,
        kwargs: Any = None,
        callback: Any = None,
        accept_callback: Any = None,
        **options: Any,
    ) -> DeliveryGreenlet | None:
        """Put a task in line for the loop or a thread; its time begins when it does.

        Returns by what a task on the loop can be ended alone.
        """
        limits = self._limits.of(options)
        task, event_id = args[:2]
        if target is not run_batch and self._shares_loop(task):
            run = partial(self._share, target, args, kwargs, callback, accept_callback, limits)
            return self.greenlets.begin(f"{task}[{event_id}]", run)
        self.executor.submit(self._run, target, args, kwargs, callback, accept_callback, limits)
        return None

    def _shares_loop(self, task: str) -> bool:
        handler = self._runtime.handlers.get(task)
        return handler is not None and handler.is_async and handler.order is None

    def _share(  # noqa: PLR0917 - what Celery's pools are given
        self,
        target: Any,
        args: Any,
        kwargs: Any,
        callback: Any,
        accept_callback: Any,
        limits: Any,
        shared: DeliveryGreenlet,
    ) -> None:
        """Run in *shared*, whose coroutines and threads see its task and request as it does."""
        shared.is_struck = bool(limits[0])  # by its soft limit
        told, owned = partial(shared.tell, callback), own_stacks()
        try:
            self._run(target, args, kwargs, told, accept_callback, limits, shared)
        finally:
            disown_stacks(owned)

    def _run(self, *what: Any) -> None:
        self._limits.run(*what)
        if self._limits.is_counted:
            self._limits.count()

    def _get_info(self) -> Any:
        return {**super()._get_info(), "threads": self.executor.has, **self._limits.info()}


#: What Celery's tracer asks of a result backend.
_STORING: Final = (
    "store_result", "mark_as_started", "mark_as_done", "mark_as_failure", "mark_as_retry",
)  # fmt: skip


def store_results_in_threads(app: Any) -> None:
    """Let result backends of *app* keep no delivery waiting but the one whose result they store.

    A task may have a backend of its own.
    """
    backends = {id(backend): backend for task in app.tasks.values() if (backend := task.backend)}
    for backend in backends.values():
        if not isinstance(backend, DisabledBackend):
            for name in _STORING:
                setattr(backend, name, partial(_store, getattr(backend, name)))


def _store(store: Callable[..., Any], *args: Any, **options: Any) -> Any:
    return call_blocking(partial(store, *args, **options))
