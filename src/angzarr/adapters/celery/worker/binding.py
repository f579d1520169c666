"""Binds a Python function to the call that runs it for one delivery.

A user's task class may have its own `__call__`, as in Flask's guide: it opens a context and calls
``self.run(…)`` or ``super().__call__(…)``. Either reaches the body of the delivery.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextvars import ContextVar
from functools import partial, update_wrapper
from typing import Any, Final

from celery.exceptions import Reject

from angzarr.delivery.batch import BatchCall, BatchItem
from angzarr.delivery.context import Context
from angzarr.delivery.delivery import Delivery
from angzarr.delivery.handlers import Bind
from angzarr.delivery.invoke import RETRY_REQUEST
from angzarr.errors import ConfigurationError, DecodeError, GiveUp, RetryLater
from angzarr.events.event import decoder_for

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
    """True if the own `__call__` of *task* runs: its `super().__call__` wants the body."""
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


#: The text about a delivery that its task gave back to the queue.
REQUEUED: Final = "the task rejected it and asked for it to be queued again"


def event_decoder(function: Callable[..., Any], declared: object) -> Callable[[Any], Any]:
    """The decoder of *function*'s events: by its annotation, or else by *declared*."""
    _takes_context(function)  # refuses what is no handler before its annotations are read
    return decoder_for(_annotation(function, declared))


def event_binding(function: Callable[..., Any], decode: Callable[[Any], Any]) -> Bind:
    """Bind an event handler: its event decoded, and the context if it takes it."""
    takes_context = _takes_context(function)

    def bind(delivery: Delivery, context: Context) -> Callable[[], Any]:
        event = decode(body_of(delivery))
        if takes_context:
            return lambda: function(event, context)
        return lambda: function(event)

    return bind


def batch_decoder(function: Callable[..., Any], declared: object) -> Callable[[Any], Any]:
    """The decoder of the events of a list that *function* takes.

    Raises ConfigurationError if its first argument is annotated as anything but a list.
    """
    _takes_context(function)
    annotation = _annotation(function, declared if isinstance(declared, str) else None)
    if annotation is None or annotation is list or isinstance(annotation, str):  # it says no type
        return decoder_for(declared)
    of, members = typing.get_origin(annotation), typing.get_args(annotation)
    if of not in (list, Sequence) or len(members) != 1:
        name = function.__name__
        msg = (
            f"{function.__qualname__} has a batch, so it gets a list of events: annotate its"
            f" argument as one, as in {name}(events: list[OrderPlaced]); got {annotation!r}"
        )
        raise ConfigurationError(msg)
    return decoder_for(members[0])


def batch_binding(function: Callable[..., Any], decode: Callable[[Any], Any]) -> Bind:
    """Bind a batch handler: each event is an item of a list that its handler gets."""
    call = BatchCall(function, takes_context=_takes_context(function))

    def bind(delivery: Delivery, context: Context) -> BatchItem:
        return BatchItem(call, decode(body_of(delivery)), context)

    return bind


def of_types(bind: Bind, types: AbstractSet[str]) -> Bind:
    """Let *bind* see the events of *types* only: of others nothing is read, and nothing is done.

    An ordered handler is sent these too, and they may be anything. A message that names no type,
    as ``apply()`` sends it, is for the one type that there is.
    """

    def bound(delivery: Delivery, context: Context) -> Callable[[], Any]:
        unnamed = delivery.event.type == delivery.handler and len(types) == 1
        if unnamed or delivery.event.type in types:
            return bind(delivery, context)
        return lambda: None

    return bound


def body_of(delivery: Delivery) -> Any:
    """The data of the event that *delivery* brings; raises DecodeError for a task's call."""
    if len(delivery.args) != 1 or delivery.kwargs:
        msg = f"an event has one body, this message has {len(delivery.args)} arguments"
        raise DecodeError(msg)
    return delivery.args[0]


def task_binding(task: Any) -> Bind:
    """Bind a plain task: its arguments as they were sent."""
    fits = getattr(task, "__header__", None) or inspect.signature(task.run).bind

    def bind(delivery: Delivery, _context: Context) -> Callable[[], Any]:
        def call() -> Any:
            try:
                if task.own_call is None:
                    return task.run(*delivery.args, **delivery.kwargs)
                return in_own_call(task, delivery.args, delivery.kwargs)
            except Reject as said:
                if task.request.is_eager or _asked_for_a_retry():
                    raise  # no broker has it, or its retry follows whatever it ends with
                if said.requeue:  # bounded by the policy: stock Celery would go round for ever
                    raise RetryLater(reason=REQUEUED, requeued=True) from said
                msg = f"the task rejected it: {said.reason or 'no reason given'}"
                raise GiveUp(msg) from said

        _check_arguments(task.name, fits, delivery)
        return call

    return bind


def _asked_for_a_retry() -> bool:
    asked = RETRY_REQUEST.get()
    return asked is not None and asked.retry is not None


def task_fallback(function: Callable[..., Any] | None) -> Bind | None:
    """Bind the function that replaces a plain task, with the task's own arguments."""
    if function is None:
        return None
    return lambda delivery, _context: partial(function, *delivery.args, **delivery.kwargs)


def _check_arguments(name: str, fits: Callable[..., Any], delivery: Delivery) -> None:
    """Refuse arguments that the function could never take before anything is claimed for them."""
    try:
        fits(*delivery.args, **delivery.kwargs)
    except TypeError as error:
        msg = f"the arguments do not fit {name}: {error}"
        raise DecodeError(msg) from error


def _takes_context(function: Callable[..., Any]) -> bool:
    positional = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    required = [parameter for parameter in positional if parameter.default is parameter.empty]
    if not positional or len(required) > 2:  # noqa: PLR2004 - event and context
        msg = (
            f"{function.__qualname__} cannot be a handler: write it as"
            f" {function.__name__}(event) or {function.__name__}(event, ctx)"
        )
        raise ConfigurationError(msg)
    return len(positional) > 1


def _annotation(function: Callable[..., Any], declared: object) -> object:
    first = next(iter(inspect.signature(function).parameters))
    try:
        hints = typing.get_type_hints(function)
    except NameError as error:
        if not isinstance(declared, str):
            return declared
        msg = f"the annotation of {function.__qualname__} cannot be read: {error}"
        raise ConfigurationError(msg) from error
    return hints.get(first, declared)
