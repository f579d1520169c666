"""Task classes: the user's, put on the road where that can be done, and found where not."""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterator
from typing import Any

from celery import Task
from kombu.utils.imports import symbol_by_name

from angzarr.adapters.celery.worker.task import RoadTask
from angzarr.adapters.celery.worker.task_call import BodyRun
from angzarr.errors import ConfigurationError


def with_road(base: Any, road_task: Any = RoadTask) -> Any:
    """Return the task class *base*, or its name, with *road_task* under it."""
    base = symbol_by_name(base)
    if issubclass(base, RoadTask):
        return base
    if issubclass(road_task, base):  # Celery's own Task
        return road_task
    said = {"abstract": True, "__module__": base.__module__, "__doc__": base.__doc__}
    return types.new_class(base.__name__, (base, road_task), {}, lambda body: body.update(said))


def on_road(base: Any) -> dict[str, Any]:
    """Return what a task's class derived from *base* says, to take the road before its `__call__`.

    The first `__call__` along its MRO is the user's; it may be that of a mixin.
    """
    for kind in base.__mro__:
        found = vars(kind).get("__call__")
        if found is RoadTask.__call__:
            return {}
        if found is not None:
            return {"__call__": RoadTask.__call__, "own_call": found}
    return {}


def put_on_road(task: Any, road_task: Any) -> Any:
    """Return *task*, of a class of the user's, with a class that takes the road.

    Raises ConfigurationError for what is no task of Celery's.
    """
    kind = type(task)
    if not issubclass(kind, Task):
        msg = (
            f"{kind.__name__} is not a task class, so its messages could be lost: derive it from"
            " app.Task"
        )
        raise ConfigurationError(msg)
    base = with_road(kind, road_task)
    said = on_road(base)
    if base is not kind or said:
        said |= {"__module__": kind.__module__, "__doc__": kind.__doc__}
        task.__class__ = types.new_class(kind.__name__, (base,), {}, lambda body: body.update(said))
    return task


def open_body(task: Any) -> None:
    """Let the own `__call__` of *task* come to whatever its delivery is bound to; once."""
    if task.own_call is not None and not isinstance(task.run, BodyRun):
        task.run = BodyRun(task)


def off_road(app: Any, name: str, task: Any) -> Iterator[tuple[str, str]]:
    """Return why deliveries of *task* would not take the road of *app*, each with its cure."""
    handler, kind = app.handlers.get(name), type(task)
    if handler is None or not issubclass(kind, RoadTask):
        yield "was put into the task registry directly", "register it with app.register_task"
        return
    if kind.__call__ is not RoadTask.__call__ or kind.__trace__ is not RoadTask.__trace__:
        yield (
            f"has a class {kind.__name__} that was changed after it was registered",
            "give the class its __call__ before app.task or app.register_task",
        )
    if not issubclass(symbol_by_name(task.Request), symbol_by_name(RoadTask.Request)):
        yield (
            "has its own Request class, which would settle messages past angzarr",
            "move its code to before_start, on_success, on_failure or on_retry of the class",
        )
    if task.Strategy != Task.Strategy or kind.start_strategy is not Task.start_strategy:
        called = getattr(task.Strategy, "__qualname__", task.Strategy)
        yield (
            f"acknowledges messages past angzarr by a Strategy of its own ({called})",
            "handle one event at a time, or run it with a celery.Celery app in a worker of its own",
        )
    if task.own_call is not None:
        yield from _colours(task, is_async=handler.is_async)


def _colours(task: Any, *, is_async: bool) -> Iterator[tuple[str, str]]:
    if inspect.iscoroutinefunction(task.own_call) == is_async:
        return
    if is_async:
        yield (
            "is async, and the __call__ of its class would end before it runs",
            "make the __call__ async too, or the task sync",
        )
    else:
        yield "is sync, and the __call__ of its class is async", "make both sync, or both async"
