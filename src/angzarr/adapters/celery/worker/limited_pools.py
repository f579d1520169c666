"""The pools of a supervised process: solo, threads and coroutines, whose tasks have limits.

Celery's own solo and threads ignore time limits and how many tasks a process may run. Here
`TimeLimits` keeps the first, and the process drains after the second.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from celery.backends.base import DisabledBackend
from celery.concurrency import solo, thread
from celery.concurrency.base import BasePool, apply_target

from angzarr.adapters.celery.worker.loop_watch import LoopWatch
from angzarr.adapters.celery.worker.pools import SteadyExecutor
from angzarr.adapters.celery.worker.runtime import runtime_of
from angzarr.adapters.celery.worker.supervised import SupervisedProcess
from angzarr.adapters.celery.worker.task_request import disown_stacks, own_stacks
from angzarr.delivery.async_runner import begin_shared
from angzarr.runtime.offload import offload
from angzarr.runtime.processes import PeriodicThread

if TYPE_CHECKING:
    from angzarr.adapters.celery.worker.delivery_greenlets import DeliveryGreenlet

#: Threads for calls of deliveries on the loop that block: to stores, brokers and dead letters.
OFFLOAD_THREADS: Final = 8


class _Limits:
    """What a pool asks before and after each task."""

    def __init__(self, pool: Any) -> None:
        self._options = pool.options
        self._left = self._options.get("maxtasksperchild") or 0
        self.is_counted = self._left > 0
        self._process: SupervisedProcess | None = runtime_of(pool.app).supervised
        if self._process is not None:
            self._process.capacity = pool.limit
            self._process.most_memory = self._options.get("max_memory_per_child") or 0

    def run(  # noqa: PLR0917 - what Celery's pools are given
        self,
        target: Callable[..., Any],
        args: Any,
        kwargs: Any,
        callback: Callable[..., Any],
        accept_callback: Callable[..., Any],
        limits: tuple[float | None, float | None, Callable[..., Any], Callable[..., Any]],
        shared: DeliveryGreenlet | None = None,
    ) -> None:
        """Run a task as Celery's pools do, within its soft and its hard limit.

        *shared* is what it runs in where it shares its thread with others.
        """
        soft, hard, fail, tell = limits
        if self._process is None or not (soft or hard):
            apply_target(target, args, kwargs, callback, accept_callback)
            return
        ends = () if shared is None else (shared.strike, shared.cut)
        with self._process.time_limits.watch(soft, hard, fail, tell, *ends) as run:

            def ended(told: Any) -> None:
                if not run.is_over:  # else its hard limit is being settled
                    callback(told)

            apply_target(target, args, kwargs, ended, accept_callback)

    def of(self, options: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
        """The limits of one task, or those of all, and who is told."""
        return (
            options.get("soft_timeout") or self._options.get("soft_timeout"),
            options.get("timeout") or self._options.get("timeout"),
            options.get("error_callback"),
            options.get("timeout_callback"),
        )

    def count(self) -> None:
        """Take note that a task ended; the process drains after the last that it may run."""
        self._left -= 1
        if self._left == 0 and self._process is not None:
            self._process.drain("it has run as many tasks as it may")

    def info(self) -> dict[str, Any]:
        """What `celery inspect stats` shows of them."""
        return {
            "max-tasks-per-child": self._options.get("maxtasksperchild") or "N/A",
            "timeouts": (
                self._options.get("soft_timeout") or 0, self._options.get("timeout") or 0
            ),
        }  # fmt: skip


class SoloPool(solo.TaskPool):
    """One task at a time, on the consumer's own thread."""

    name = "solo"
    keeps_limits = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._limits = _Limits(self)
        self.on_apply = self._apply

    def _apply(
        self,
        target: Any,
        args: Any = (),
        kwargs: Any = None,
        callback: Any = None,
        accept_callback: Any = None,
        **options: Any,
    ) -> None:
        limits = self._limits.of(options)
        self._limits.run(target, args, kwargs, callback, accept_callback, limits)
        if self._limits.is_counted:
            self._limits.count()

    def _get_info(self) -> Any:
        return {**super()._get_info(), **self._limits.info()}


class ThreadsPool(thread.TaskPool):
    """Several tasks at once, each on a thread."""

    name = "threads"
    keeps_limits = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._limits = _Limits(self)

    def on_apply(
        self,
        target: Any,
        args: Any = None,
        kwargs: Any = None,
        callback: Any = None,
        accept_callback: Any = None,
        **options: Any,
    ) -> Any:
        """Put a task in line for a thread; its time begins when it does."""
        limits = self._limits.of(options)
        future = self.executor.submit(
            self._run, target, args, kwargs, callback, accept_callback, limits
        )
        return thread.ApplyResult(future)

    def _run(self, *what: Any) -> None:
        self._limits.run(*what)
        if self._limits.is_counted:
            self._limits.count()

    def _get_info(self) -> Any:
        return {**super()._get_info(), **self._limits.info()}


class CoroutinesPool(BasePool):  # type: ignore[misc]
    """Many async tasks at once on the thread of one event loop; all others on a few threads.

    An ordered handler is one of the others: its lane may hold a transaction.
    """

    name = "coroutines"
    keeps_limits = True
    body_can_be_buffer = True
    signal_safe = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        from angzarr.adapters.celery.worker.delivery_greenlets import DeliveryGreenlets

        self._limits = _Limits(self)
        self._runtime = runtime_of(self.app)
        process, loop = self._runtime.supervised, begin_shared()
        self.executor = SteadyExecutor(self.limit if process is None else process.sync_threads)
        self._offloads = SteadyExecutor(OFFLOAD_THREADS)
        self.greenlets = DeliveryGreenlets(loop, self._offloads, self.limit)
        patience = self._runtime.loop_blocked_after
        self._watch = PeriodicThread("angzarr-loop-watch", lambda _: LoopWatch(loop, patience))
        offload_results(self.app)

    def on_start(self) -> None:
        """Watch the loop."""
        self._watch.start()

    def on_stop(self) -> None:
        """End the threads once what runs in them has ended."""
        self._watch.end()
        self.greenlets.close()
        self.executor.shutdown(cancel_futures=True)
        self._offloads.shutdown()

    def on_apply(
        self,
        target: Any,
        args: Any = None,
        kwargs: Any = None,
        callback: Any = None,
        accept_callback: Any = None,
        **options: Any,
    ) -> None:
        """Put a task in line for the loop or a thread; its time begins when it does."""
        limits = self._limits.of(options)
        run = partial(self._run, target, args, kwargs, callback, accept_callback, limits)
        task, event_id = args[:2]
        if self._shares_loop(task):
            self.greenlets.begin(f"{task}[{event_id}]", partial(_owning, run))
        else:
            self.executor.submit(run)

    def _shares_loop(self, task: str) -> bool:
        handler = self._runtime.handlers.get(task)
        return handler is not None and handler.is_async and handler.order is None

    def _run(self, *what: Any) -> None:
        self._limits.run(*what)
        if self._limits.is_counted:
            self._limits.count()

    def _get_info(self) -> Any:
        return {**super()._get_info(), "threads": self.executor.has, **self._limits.info()}


def _owning(run: Callable[[DeliveryGreenlet], object], shared: DeliveryGreenlet) -> None:
    """Run in *shared*, whose coroutines and threads see its task and request as it does."""
    owned = own_stacks()
    try:
        run(shared)
    finally:
        disown_stacks(owned)


#: What Celery's tracer asks of a result backend.
_STORING: Final = (
    "store_result", "mark_as_started", "mark_as_done", "mark_as_failure", "mark_as_retry",
)  # fmt: skip


def offload_results(app: Any) -> None:
    """Let result backends of *app* keep no delivery waiting but the one whose result they store."""
    backend = app.backend
    if isinstance(backend, DisabledBackend):
        return
    for name in _STORING:
        setattr(backend, name, partial(_offloaded, getattr(backend, name)))


def _offloaded(store: Callable[..., Any], *args: Any, **options: Any) -> Any:
    return offload(partial(store, *args, **options))
