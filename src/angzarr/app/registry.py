"""Registering: a function becomes a Celery task and a handler.

Classes: the checks of any class that becomes handlers.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple, TypeVar, overload

from celery.exceptions import Ignore
from kombu import Queue

from angzarr.adapters.celery.options import TASK, check_task_options
from angzarr.adapters.celery.worker.binding import (
    around,
    batch_binding,
    batch_decoder,
    event_binding,
    event_decoder,
    of_types,
    task_binding,
    task_fallback,
)
from angzarr.adapters.celery.worker.task_classes import CeleryTasks, check_batch, twice
from angzarr.delivery.batch import Batch
from angzarr.delivery.handlers import Bind, Handler
from angzarr.errors import ConfigurationError, DuplicateHandler
from angzarr.events.event import check_domain, event_type_of
from angzarr.ordering.lane import Order, order_by, refuse_order
from angzarr.resilience.backoff import Policy
from angzarr.resilience.breaker_guard import Named, guards
from angzarr.resilience.limit import Limit, Limited, limits_of
from angzarr.resilience.taxonomy import Rule, VerdictRule
from angzarr.wiring.context import AppContext

UndoFunction = TypeVar("UndoFunction", bound=Callable[[Any], Any])


class Registered(NamedTuple):
    """A handler's function, what it takes, and its task."""

    of: Callable[..., Any]
    takes: tuple[object, ...]
    task: Any


class HandlerRegistry:
    """Turns functions, and methods of classes, into handlers and Celery tasks."""

    def __init__(self, context: AppContext, tasks: CeleryTasks) -> None:
        self._context = context
        self._tasks = tasks
        self._functions: dict[str, Registered] = {}

    def handler(
        self,
        /,
        event: object,
        *,
        domain: str | None = None,
        operation: str | None = None,
        policy: Policy | str | None = None,
        breaker: Named = None,
        limit: Limited = None,
        fallback: Callable[..., Any] | None = None,
        queue: str | None = None,
        compensation: object | None = None,
        idempotent: bool = True,
        rules: Sequence[Rule] = (),
        verdicts: Sequence[VerdictRule] = (),
        max_age: timedelta = timedelta(days=1),
        name: str | None = None,
        ordered_by: Literal["root"] | None = None,
        first_sequence: int = 0,
        batch: Batch | None = None,
        **task_options: Any,
    ) -> Callable[[Callable[..., Any]], Any]:
        """Register a function, sync or async, for the events of a type: ``f(event[, ctx])``.

        *event* is a pydantic model, a dataclass, a protobuf message or a type name; *policy*
        names a backoff policy (else *operation* does, else the event's priority, and the
        settings may say otherwise); *breaker* one
        breaker, several, or a mapping of names to the errors that each counts; *fallback* is
        called in its place while one is open; *compensation* another handler, or its name, that
        takes the same event and undoes what this one did, when a person says so; *limit* a
        `Limit`, the name of one in the settings, or several; *ordered_by* "root" has it take the
        events of each aggregate of *domain* in order, from *first_sequence* on; *batch* has it take
        several events in one call, as a list, and answer for each by a `BatchResult`;
        *task_options* go to Celery. Raises DuplicateHandler, InvalidDomainName or
        ConfigurationError at once.
        """
        event_type = event_type_of(event)
        if domain is not None:
            check_domain(domain)
        order = order_by(ordered_by, domain, event_type, first_sequence)
        if batch is not None:
            refused = {"ordered_by": ordered_by, "fallback": fallback, "limit": limit}
            check_batch(batch, refused, self._tasks.base_of(task_options))
        decoder, binding = (
            (event_decoder, event_binding) if batch is None else (batch_decoder, batch_binding)
        )

        def register(function: Callable[..., Any]) -> Any:
            decode = decoder(function, event)
            return self.take(
                name or self._tasks.name_of(function),
                binding(function, decode),
                function,
                decode=decode,
                event_type=event_type,
                domain=domain,
                operation=operation,
                policy=policy,
                breaker=breaker,
                limit=limit,
                fallback=fallback and event_binding(fallback, decode),
                queue=queue,
                compensation=task_name(compensation),
                idempotent=idempotent,
                rules=rules,
                verdicts=verdicts,
                max_age=max_age,
                order=order,
                batched=batch,
                **task_options,
            )

        return register

    @overload
    def undo(self, function: UndoFunction, /) -> UndoFunction: ...

    @overload
    def undo(self, /, *, name: str) -> Callable[[UndoFunction], UndoFunction]: ...

    def undo(self, function: Any = None, /, *, name: str | None = None) -> Any:
        """Register a function, sync or async, that undoes a finished step: ``f(data)``.

        It may be called more than once, and by another process than the one that finished the
        step, which finds it by *name* (else by module and function): keep the name while steps
        may wait. Raises ConfigurationError for what takes no single value, DuplicateHandler for a
        name that is taken.
        """
        if function is None:
            return partial(self._add_undo, name=name)
        return self._add_undo(function)

    def _add_undo(self, function: Any, name: str | None = None) -> Any:
        known_as = name or self._tasks.name_of(function)
        first = self._context.undos.get(known_as)
        if (
            first is not None
            and first.function is not function
            and self._tasks.keeps_first(known_as, first.function, function)
        ):
            return first.function
        self._context.undos.add(known_as, function)
        return function

    def take(
        self,
        name: str,
        bind: Bind,
        function: Callable[..., Any],
        *,
        decode: Callable[[Any], Any] | None = None,
        event_type: str | None = None,
        domain: str | None = None,
        operation: str | None = None,
        policy: Policy | str | None = None,
        policies: Mapping[str, Policy] | None = None,
        breaker: Named = None,
        limit: Limited = None,
        fallback: Bind | None = None,
        queue: str | None = None,
        order: Order | None = None,
        batched: Batch | None = None,
        compensation: str | None = None,
        idempotent: bool = True,
        rules: Sequence[Rule] = (),
        verdicts: Sequence[VerdictRule] = (),
        max_age: timedelta = timedelta(days=1),
        component_type: str = "handler",
        **task_options: Any,
    ) -> Any:
        """Register the handler *name*, which runs what *bind* binds, and *function* as its task.

        With an *order* it is sent every event of its domains, and *bind* is asked of those of its
        types only.
        """
        refuse_order(task_options)
        check_task_options(
            task_options, lambda: self._tasks.base_of(task_options), self._handler_options
        )
        takes = (event_type, domain, order)
        if (first := self._functions.get(name)) is not None:
            # One function for two events would be sent the first of them only.
            again = first.of is not function and first.takes == takes
            if again and self._tasks.keeps_first(name, first.of, function):
                return first.task
            raise DuplicateHandler(twice(name, first.of, function))
        if order is not None:
            bind = of_types(bind, order.types)
            fallback = fallback and of_types(fallback, order.types)
        task_of = partial(self._tasks.get, name)
        self._context.handlers.add(
            Handler(
                name=name,
                bind=around(bind, task_of),
                decode=decode,
                event_type=event_type,
                domain=domain,
                operation=operation,
                policy=self._policy(policy, operation),
                policies=policies or {},
                breakers=guards(breaker),
                limits=self._limits(limit),
                fallback=fallback and around(fallback, task_of),
                queue=queue,
                order=order,
                batch=batched,
                compensation=compensation,
                idempotent=idempotent,
                rules=tuple(rules),
                verdicts=tuple(verdicts),
                max_age=max_age,
                component_type=component_type,
                finished_by=(Ignore,),
                is_async=inspect.iscoroutinefunction(function),
            )
        )
        task = self._tasks.make(name, function, task_options)
        self._functions[name] = Registered(function, takes, task)
        return task

    def take_task(self, task: Any, *, is_async: bool) -> None:
        """Register a plain task; domain, policy, … may be given as options of ``@app.task``."""
        if self._context.handlers.get(task.name) is not None:
            return
        refuse_order(dir(task))
        domain, operation = getattr(task, "domain", None), getattr(task, "operation", None)
        if domain is not None:
            check_domain(domain)
        fallback = task_fallback(getattr(task, "fallback", None))
        self._context.handlers.add(
            Handler(
                name=task.name,
                bind=task_binding(task),
                domain=domain,
                operation=operation,
                policy=self._policy(getattr(task, "policy", None), operation),
                breakers=guards(getattr(task, "breaker", None)),
                limits=self._limits(getattr(task, "limit", None)),
                fallback=fallback and around(fallback, lambda: task),
                queue=_queue_name(getattr(task, "queue", None)),
                compensation=task_name(getattr(task, "compensation", None)),
                idempotent=getattr(task, "idempotent", True),
                finished_by=(Ignore,),
                is_async=is_async,
            )
        )

    def _policy(self, policy: Policy | str | None, operation: str | None) -> Policy | str | None:
        """The *policy* that a handler itself names; refuse names that say nothing."""
        if policy is not None:
            self._context.policy_rules.named(policy)
        elif operation is not None:
            self._context.policy_rules.check_operation(operation)
        return policy

    def _limits(self, limited: Limited) -> tuple[Limit, ...]:
        """The limits that a handler names; raises ConfigurationError for a name's second."""
        limits = limits_of(limited, self._context.settings.flow.named_limits())
        if limits:
            known = {
                limit.name: limit for handler in self._context.handlers for limit in handler.limits
            }
            for limit in limits:
                if known.get(limit.name, limit) != limit:
                    msg = (
                        f"limit {limit.name!r} is given twice with different values, {limit} and"
                        f" {known[limit.name]}: make one Limit and share it, or rename one"
                    )
                    raise ConfigurationError(msg)
        return limits

    @cached_property
    def _handler_options(self) -> frozenset[str]:
        """What `handler` takes for whatever runs one event, and what Celery takes for its task."""
        named = inspect.signature(HandlerRegistry.handler).parameters
        return TASK | (frozenset(named) - {"self", "event", "task_options", "batch"})


def task_name(task: object | None) -> str | None:
    """The name of the task that a handler names as its compensation."""
    return None if task is None else str(getattr(task, "name", task))


def _queue_name(queue: Queue | str | None) -> str | None:
    """The name of the queue that a plain task names."""
    return queue.name if isinstance(queue, Queue) else queue


def check_is(kind: type, base: type) -> None:
    """Raise ConfigurationError unless *kind* derives from *base*."""
    if not issubclass(kind, base):
        msg = f"{kind.__qualname__} is not a {base.__name__}: derive it from {base.__name__}"
        raise ConfigurationError(msg)


def give_name(kind: type, attribute: str, name: str) -> None:
    """Give *kind* its name, which stands in books and ids: it has one only."""
    known = vars(kind).get(attribute) or name
    if known != name:
        msg = (
            f"{kind.__qualname__} is registered as {known!r} and as {name!r}, and has one"
            f" {attribute}: derive a class for each"
        )
        raise ConfigurationError(msg)
    setattr(kind, attribute, name)


def called_directly(_data: Any) -> None:
    """Refuse: Celery's task of a class is run by a message."""
    msg = "this task runs in a worker, by a message: send the command or the event instead"
    raise ConfigurationError(msg)
