"""The pools of a supervised process: Celery's solo and threads, whose tasks have limits.

Celery's own ignore time limits and how many tasks a process may run. Here `TimeLimits` keeps the
first, and the process drains after the second.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from celery.concurrency import solo, thread
from celery.concurrency.base import apply_target

from angzarr.adapters.celery.worker.runtime import runtime_of
from angzarr.adapters.celery.worker.supervised import SupervisedProcess

if TYPE_CHECKING:
    from angzarr.adapters.celery.worker.delivery_greenlets import DeliveryGreenlet


class TaskLimits:
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
        self._limits = TaskLimits(self)
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
        self._limits = TaskLimits(self)

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
