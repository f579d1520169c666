"""The `__call__` of a user's task class: on the road it runs around the body, as in Celery.

A class such as Flask's guide shows opens an application context and calls ``self.run(…)``, or its
``super().__call__(…)``; either comes to the body of the delivery, however that was bound.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import partial, update_wrapper
from typing import Any

from angzarr.delivery.context import Context
from angzarr.delivery.delivery import Delivery
from angzarr.delivery.handlers import Bind

#: The task whose own `__call__` runs here, and what its `run` does in place of its function.
_RUNNING: ContextVar[tuple[Any, Callable[[], Any] | None] | None] = ContextVar(
    "angzarr_own_call", default=None
)


def in_own_call(
    task: Any, args: Sequence[Any], kwargs: Mapping[str, Any], body: Callable[[], Any] | None = None
) -> Any:
    """Call *task*'s own `__call__`, in which its `run` is *body*; without one its function."""
    if inspect.iscoroutinefunction(task.own_call):
        return _in_async_call(task, args, kwargs, body)
    running = _RUNNING.set((task, body))
    try:
        return task.own_call(*args, **kwargs)
    finally:
        _RUNNING.reset(running)


async def _in_async_call(
    task: Any, args: Sequence[Any], kwargs: Mapping[str, Any], body: Callable[[], Any] | None
) -> Any:
    running = _RUNNING.set((task, body))
    try:
        return await task.own_call(*args, **kwargs)
    finally:
        _RUNNING.reset(running)


def is_within(task: Any) -> bool:
    """Tell whether the own `__call__` of *task* runs: its `super().__call__` wants the body."""
    running = _RUNNING.get()
    return running is not None and running[0] is task


def around(bind: Bind, task_of: Callable[[], Any]) -> Bind:
    """Let what *bind* binds run within the own `__call__` of its task, if that has one."""

    def bound(delivery: Delivery, context: Context) -> Callable[[], Any]:
        call, task = bind(delivery, context), task_of()
        if task is None or task.own_call is None:
            return call
        return partial(in_own_call, task, delivery.args, delivery.kwargs, call)

    return bound


class BodyRun:
    """The `run` of a task that has a `__call__` of its own: the body in hand, or its function."""

    def __init__(self, task: Any) -> None:
        self._task = task
        self._function = task.run
        update_wrapper(self, task.run)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the body of the delivery in hand; called in another way, the function."""
        running = _RUNNING.get()
        if running is None or running[0] is not self._task or running[1] is None:
            return self._function(*args, **kwargs)
        return running[1]()
