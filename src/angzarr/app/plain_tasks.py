"""PlainTasks: Celery's tasks of an app, each of which becomes a handler."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, overload

from celery import Celery
from celery.exceptions import Ignore
from kombu import Queue

from angzarr.adapters.celery.options import check_task_options
from angzarr.adapters.celery.worker.binding import around, task_binding, task_fallback
from angzarr.adapters.celery.worker.task_classes import (
    RENAME,
    is_imported_again,
    on_road,
    open_body,
    put_on_road,
    twice,
    warn_once,
    with_road,
)
from angzarr.delivery.handlers import Handler, Handlers
from angzarr.errors import ConfigurationError, DuplicateHandler
from angzarr.events.event import check_domain
from angzarr.ordering.lane import refuse_order
from angzarr.resilience.backoff import Policy
from angzarr.resilience.breaker_guard import guards
from angzarr.resilience.limit import Limit, Limited, limits_of
from angzarr.resilience.policy_rules import PolicyRules
from angzarr.settings.settings import Settings


class PlainTasks(Celery):
    """What an app does with Celery's tasks: each is a handler and takes the road."""

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

    def _base_of(self, options: Mapping[str, Any]) -> Any:
        return options.get("base") or self.Task

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
        check_task_options(options, lambda: self._base_of(options))
        options.setdefault("shared", False)
        return super().task(*args, **options)

    def _task_from_fun(
        self, fun: Callable[..., Any], name: str | None = None, base: Any = None, **options: Any
    ) -> Any:
        """Register a plain task's handler beside its Celery task (Celery's own extension point)."""
        mixed = self.Task if base is None else with_road(base, self.Task)
        check_task_options(options, lambda: mixed)  # of `shared_task`, whose app is not known
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
                compensation=task_name(getattr(task, "compensation", None)),
                idempotent=getattr(task, "idempotent", True),
                finished_by=(Ignore,),
                is_async=is_async,
            )
        )

    def _warn_if_duplicate_task_name(self, task: Any, fun: Any, name: str) -> None:
        """Refuse what Celery only warns of: one of two functions would never be called."""
        first = getattr(task, "_decorated_fun", None)
        if first is None or first is fun or self.keeps_first(name, first, fun):
            return
        raise DuplicateHandler(twice(name, first, fun))

    def _warn_duplicate_task_name(
        self, name: str, existing: str, new: str, _consequence: str
    ) -> NoReturn:
        """Refuse a class-based task under a name that is taken, in place of a warning."""
        msg = f"{name!r} is the name of {existing} and of {new}: {RENAME}"
        raise DuplicateHandler(msg)

    def keeps_first(self, name: str, first: Any, again: Any) -> bool:
        """Tell whether *again* is *first*, of a module that was imported twice: then first stays.

        What was registered first may run already. A warning says so.
        """
        again_it_is = is_imported_again(first, again)
        if again_it_is:
            warn_once(self, name, first, again)
        return again_it_is


def task_name(task: object | None) -> str | None:
    """Return the name of what a handler names as its compensation."""
    return None if task is None else str(getattr(task, "name", task))


def _queue_name(queue: Queue | str | None) -> str | None:
    """Return the name of what a plain task names as its queue."""
    return queue.name if isinstance(queue, Queue) else queue
