"""Users' task classes, adapted so that deliveries are settled, and functions registered twice.

A module that is imported under two names registers its functions twice; that is not a clash.
"""

from __future__ import annotations

import inspect
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from celery import Celery, Task
from celery.app.base import caller_stacklevel
from celery.exceptions import DuplicateTaskNameWarning
from kombu.utils.imports import symbol_by_name

from angzarr.adapters.celery.worker.binding import BodyRun
from angzarr.adapters.celery.worker.runtime import runtime_of
from angzarr.adapters.celery.worker.task import AngzarrTask
from angzarr.delivery.batch import Batch
from angzarr.errors import ConfigurationError


def with_road(base: Any, road_task: Any = AngzarrTask) -> Any:
    """The task class *base*, or its name, with *road_task* under it."""
    base = symbol_by_name(base)
    if issubclass(base, AngzarrTask):
        return base
    if issubclass(road_task, base):  # Celery's own Task
        return road_task
    said = {"abstract": True, "__module__": base.__module__, "__doc__": base.__doc__}
    return types.new_class(base.__name__, (base, road_task), {}, lambda body: body.update(said))


def on_road(base: Any) -> dict[str, Any]:
    """The attributes by which a class derived from *base* runs deliveries before its `__call__`.

    The first `__call__` along its MRO is the user's; it may be that of a mixin.
    """
    for kind in base.__mro__:
        found = vars(kind).get("__call__")
        if found is AngzarrTask.__call__:
            return {}
        if found is not None:
            return {"__call__": AngzarrTask.__call__, "own_call": found}
    return {}


def put_on_road(task: Any, road_task: Any) -> Any:
    """*task*, of a user's class, with a class that runs deliveries.

    Raises ConfigurationError for an object that is not a Celery task.
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


#: What a handler may not say beside its batch, and why.
_NOT_OF_BATCHES: Final = {
    "ordered_by": "a batch takes events as they come, whatever their aggregate: remove ordered_by",
    "fallback": "a fallback replaces a call for one event: remove fallback, or batch",
    "limit": "a limit counts the runs of single events: remove limit, or batch",
}


def check_batch(batch: Batch, given: Mapping[str, object], base: Any) -> None:
    """Refuse what a batch handler cannot keep; raises ConfigurationError.

    *given* are its other arguments, *base* is the class of its task.
    """
    if not isinstance(batch, Batch):
        msg = f"batch must be a Batch, as in Batch(size=100, wait=0.05); got {batch!r:.100}"
        raise ConfigurationError(msg)
    for name, value in given.items():
        if value is not None:
            msg = f"a handler with a batch cannot have {name}: {_NOT_OF_BATCHES[name]}"
            raise ConfigurationError(msg)
    kind = symbol_by_name(base)
    own = "before_start" if kind.before_start is not Task.before_start else ""
    if on_road(with_road(kind)):
        own = "__call__"
    if own:
        msg = (
            f"a handler with a batch cannot have the task class {kind.__name__}: its {own} runs"
            " around one event; give the handler another base class, or remove batch"
        )
        raise ConfigurationError(msg)


def open_body(task: Any) -> None:
    """Let the own `__call__` of *task* come to whatever its delivery is bound to; once."""
    if task.own_call is not None and not isinstance(task.run, BodyRun):
        task.run = BodyRun(task)


def off_road(app: Celery, name: str, task: Any) -> Iterator[tuple[str, str]]:
    """The reasons why *task* would bypass the delivery executor of *app*, with their cures."""
    handler, kind = runtime_of(app).handlers.get(name), type(task)
    if handler is None or not issubclass(kind, AngzarrTask):
        yield "was put into the task registry directly", "register it with app.register_task"
        return
    if kind.__call__ is not AngzarrTask.__call__ or kind.__trace__ is not AngzarrTask.__trace__:
        yield (
            f"has a class {kind.__name__} that was changed after it was registered",
            "give the class its __call__ before app.task or app.register_task",
        )
    if not issubclass(symbol_by_name(task.Request), symbol_by_name(AngzarrTask.Request)):
        yield (
            "has its own Request class, which would settle messages past angzarr",
            "move its code to before_start, on_success, on_failure or on_retry of the class",
        )
    if task.Strategy not in _STRATEGIES or kind.start_strategy is not Task.start_strategy:
        called = getattr(task.Strategy, "__qualname__", task.Strategy)
        yield (
            f"acknowledges messages past angzarr by a Strategy of its own ({called})",
            "register a handler with batch=…, or give it a celery.Celery app and its own worker",
        )
    if task.own_call is not None:
        yield from _colours(task, is_async=handler.is_async)


#: Ours, and Celery's, which it stands for.
_STRATEGIES: Final = (AngzarrTask.Strategy, Task.Strategy)


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


RENAME: Final = "rename one, or pass name=…"


def is_imported_again(first: Any, again: Any) -> bool:
    """True if two functions, or two classes, come from one place in one file.

    Their module was reloaded then, or imported under two names. What a function makes anew at each
    call is another one each time.
    """
    one, other = inspect.unwrap(first), inspect.unwrap(again)
    named = getattr(one, "__qualname__", "<")
    if named != getattr(other, "__qualname__", None) or "<" in named:
        return False
    place = source_of(one)
    return place is not None and place == source_of(other)


def source_of(given: Any) -> str | None:
    """The file and line of a function, or of the first that a class has."""
    found = list(vars(given).values()) if isinstance(given, type) else [given]
    for one in found:
        code = getattr(getattr(one, "__func__", one), "__code__", None)
        if code is not None:
            return f"{code.co_filename}:{code.co_firstlineno}"
    return None


class CeleryTasks:
    """The tasks of *app*, as they are made and found by name."""

    def __init__(self, app: Celery) -> None:
        self._app = app

    def name_of(self, function: Any) -> str:
        """The name of the task of *function* where no other is given."""
        return str(self._app.gen_task_name(function.__name__, function.__module__))

    def get(self, name: str) -> Any:
        """The task *name*, or None."""
        return self._app._tasks.get(name)  # noqa: SLF001 - without finalizing the app

    def base_of(self, options: Mapping[str, Any]) -> Any:
        """The class of a task with *options*."""
        return options.get("base") or self._app.Task

    def make(self, name: str, function: Callable[..., Any], options: Mapping[str, Any]) -> Any:
        """Make *function* the task *name*, which checks no arguments, and return it."""
        return self._app.task(name=name, typing=False, **options)(function)

    def keeps_first(self, name: str, first: Any, again: Any) -> bool:
        """True if *again* is *first*, of a module that was imported twice: then first stays.

        What was registered first may run already. A warning says so, once a name.
        """
        again_it_is = is_imported_again(first, again)
        if again_it_is:
            self._warn_once(name, first, again)
        return again_it_is

    def _warn_once(self, name: str, first: Any, again: Any) -> None:
        """Warn that the first registration stays; warns as Celery does."""
        warned: set[str] = self._app._duplicate_task_names_warned  # noqa: SLF001 - Celery's own
        if name in warned:
            return
        warned.add(name)
        modules = " and as ".join(dict.fromkeys((first.__module__, again.__module__)))
        msg = (
            f"{name!r} was imported twice, as {modules}: what was registered first stays; import it"
            " once, by one name, and restart the process after a change"
        )
        warnings.warn(DuplicateTaskNameWarning(msg), stacklevel=caller_stacklevel())


def twice(name: str, first: Any, second: Any) -> str:
    """The error text for two functions of one name; it names each of them once."""
    one, other = (getattr(given, "__qualname__", repr(given)) for given in (first, second))
    here, there = (source_of(inspect.unwrap(given)) or "?" for given in (first, second))
    if one == other:
        return f"{name!r} is the name of two functions {one}, {here} and {there}: {RENAME}"
    return f"{name!r} is the name of {one} ({here}) and of {other} ({there}): {RENAME}"
