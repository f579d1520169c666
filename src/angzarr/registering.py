"""Registering: a function becomes a Celery task and a handler."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import cached_property, partial
from typing import Any, Literal, NoReturn, TypeVar, overload

from celery import Celery
from celery.exceptions import Ignore
from kombu import Queue

from angzarr.adapters.celery.binding import (
    event_binding,
    event_decoder,
    of_types,
    task_binding,
    task_fallback,
)
from angzarr.adapters.celery.own_call import around
from angzarr.adapters.celery.task_classes import on_road, open_body, put_on_road, with_road
from angzarr.delivery.compensation import Undos
from angzarr.delivery.handlers import Bind, Handler, Handlers
from angzarr.errors import ConfigurationError, DuplicateHandler
from angzarr.events.codec import event_type_of
from angzarr.events.event import check_domain
from angzarr.ordering.order import Order, order_by, refuse_order
from angzarr.resilience.backoff import Policy
from angzarr.resilience.guarded import Named, guards
from angzarr.resilience.limit import Limit, Limited, limits_of
from angzarr.resilience.policy_rules import PolicyRules
from angzarr.resilience.taxonomy import Rule, VerdictRule
from angzarr.settings import Settings

UndoFunction = TypeVar("UndoFunction", bound=Callable[[Any], Any])


class Registering(Celery):
    """What an app does to register; half of `Angzarr`."""

    handlers: Handlers
    policy_rules: PolicyRules
    settings: Settings

    _task_class: Any = None

    @property
    def Task(self) -> Any:  # noqa: N802 - Celery's name
        """The base class of this app's tasks: `task_cls`, or what was assigned, on the road."""
        if self._task_class is None:
            self._task_class = self.create_task_cls()
        return self._task_class

    @Task.setter
    def Task(self, kind: Any) -> None:  # noqa: N802
        self._task_class = with_road(kind)

    def create_task_cls(self) -> Any:
        """Return a base class for tasks: the user's, or that of Django's fixup, on the road."""
        return self.subclass_with_self(
            with_road(self.task_cls), name="Task", attribute="_app", keep_reduce=True, abstract=True
        )

    @cached_property
    def undos(self) -> Undos:
        """What undoes finished steps, by name."""
        return Undos()

    def handler(
        self,
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
        events of each aggregate of *domain* in order, from *first_sequence* on; *task_options* go
        to Celery. Raises DuplicateHandler, InvalidDomainName or ConfigurationError at once.
        """
        event_type = event_type_of(event)
        if domain is not None:
            check_domain(domain)
        order = order_by(ordered_by, domain, event_type, first_sequence)

        def register(function: Callable[..., Any]) -> Any:
            decode = event_decoder(function, event)
            return self.take(
                name or self.gen_task_name(function.__name__, function.__module__),
                event_binding(function, decode),
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
                compensation=_task_name(compensation),
                idempotent=idempotent,
                rules=rules,
                verdicts=verdicts,
                max_age=max_age,
                order=order,
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
        known_as = name or self.gen_task_name(function.__name__, function.__module__)
        self.undos.add(known_as, function)
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
        if order is not None:
            bind = of_types(bind, order.types)
            fallback = fallback and of_types(fallback, order.types)
        task_of = partial(self._tasks.get, name)
        self.handlers.add(
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
        return self.task(name=name, typing=False, **task_options)(function)

    def _policy(self, policy: Policy | str | None, operation: str | None) -> Policy | str | None:
        """Return the *policy* that a handler itself names; refuse names that say nothing."""
        if policy is not None:
            self.policy_rules.named(policy)
        elif operation is not None:
            self.policy_rules.check_operation(operation)
        return policy

    def _limits(self, limited: Limited) -> tuple[Limit, ...]:
        """Return the limits that a handler names; raises ConfigurationError for a name's second."""
        limits = limits_of(limited, self.settings.flow.named_limits())
        if limits:
            known = {limit.name: limit for handler in self.handlers for limit in handler.limits}
            for limit in limits:
                if known.get(limit.name, limit) != limit:
                    msg = (
                        f"limit {limit.name!r} is given twice with different values, {limit} and"
                        f" {known[limit.name]}: make one Limit and share it, or rename one"
                    )
                    raise ConfigurationError(msg)
        return limits

    @overload
    def task(self, function: Callable[..., Any], /) -> Any: ...

    @overload
    def task(self, **options: Any) -> Callable[[Callable[..., Any]], Any]: ...

    def task(self, *args: Any, **options: Any) -> Any:
        """Register a plain task, as Celery does, but with this app only.

        Celery shares an app's tasks with every other app of the process; two apps that happen to
        use one name would then run each other's functions. ``shared=True`` brings it back.
        """
        refuse_order(options)
        options.setdefault("shared", False)
        return super().task(*args, **options)

    def _task_from_fun(
        self, fun: Callable[..., Any], name: str | None = None, base: Any = None, **options: Any
    ) -> Any:
        """Register a plain task's handler beside its Celery task (Celery's own extension point)."""
        mixed = self.Task if base is None else with_road(base, self.Task)
        task = super()._task_from_fun(fun, name=name, base=mixed, **on_road(mixed), **options)
        open_body(task)
        self._take_in(task, inspect.iscoroutinefunction(fun))
        return task

    def register_task(self, task: Any, **options: Any) -> Any:
        """Register a class-based task, with the road under a class that does not derive from it."""
        made = put_on_road(task() if inspect.isclass(task) else task, self.Task)
        registered = super().register_task(made, **options)
        open_body(registered)
        self._take_in(registered, inspect.iscoroutinefunction(type(registered).run))
        return registered

    def _take_in(self, task: Any, is_async: bool) -> None:  # noqa: FBT001 - two kinds of function
        """Register a plain task; domain, policy, … may be given as options of ``@app.task``."""
        if self.handlers.get(task.name) is not None:
            return
        refuse_order(dir(task))
        domain, operation = getattr(task, "domain", None), getattr(task, "operation", None)
        if domain is not None:
            check_domain(domain)
        fallback = task_fallback(getattr(task, "fallback", None))
        self.handlers.add(
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
                compensation=_task_name(getattr(task, "compensation", None)),
                idempotent=getattr(task, "idempotent", True),
                finished_by=(Ignore,),
                is_async=is_async,
            )
        )

    def _warn_duplicate_task_name(
        self, name: str, existing: str, new: str, _consequence: str
    ) -> NoReturn:
        """Refuse what Celery only warns of: one of two functions would never be called."""
        msg = (
            f"{name!r} is registered twice, for {existing} and {new}: rename one of the"
            " functions or pass name=…"
        )
        raise DuplicateHandler(msg)


def _task_name(task: object | None) -> str | None:
    """Return the name of what a handler names as its compensation."""
    return None if task is None else str(getattr(task, "name", task))


def _queue_name(queue: Queue | str | None) -> str | None:
    """Return the name of what a plain task names as its queue."""
    return queue.name if isinstance(queue, Queue) else queue
