"""Angzarr: a Celery app whose tasks the executor runs. It holds the parts, which never see it."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from functools import partial, wraps
from typing import Any, Concatenate, NoReturn, ParamSpec, TypeVar, overload

from celery import Celery, signals

from angzarr.adapters.celery.beat import end_between_rounds
from angzarr.adapters.celery.options import check_app_options, check_task_options
from angzarr.adapters.celery.publish.batch import CelerySender
from angzarr.adapters.celery.publish.outbox import CeleryOutbox
from angzarr.adapters.celery.shutdown.shutdown import ShutdownStep
from angzarr.adapters.celery.worker.rejected_by_broker import RejectedMessageStep
from angzarr.adapters.celery.worker.task_classes import (
    RENAME,
    CeleryTasks,
    on_road,
    open_body,
    put_on_road,
    twice,
    with_road,
)
from angzarr.adapters.celery.worker.worker import StartStep
from angzarr.aggregates.decider import Decider
from angzarr.app.async_publisher import AsyncPublisher
from angzarr.app.commands import Commands
from angzarr.app.escalations import Escalations
from angzarr.app.projections import ProjectionRegistry
from angzarr.app.publisher import EventPublisher
from angzarr.app.registry import HandlerRegistry, UndoFunction
from angzarr.app.sagas import SagaRegistry
from angzarr.app.worker import WorkerLife
from angzarr.clock import SystemClock
from angzarr.delivery.handlers import Handlers
from angzarr.delivery.invoke import Hook
from angzarr.errors import DuplicateHandler
from angzarr.facts.fact import FactLog
from angzarr.ordering.lane import refuse_order
from angzarr.resilience.breaker_guard import BreakerGuard, Errors, guards, keyed
from angzarr.resilience.taxonomy import Rule, VerdictRule
from angzarr.runtime import processes as forks
from angzarr.runtime.chance import chance
from angzarr.settings.settings import SETTINGS, Settings, load
from angzarr.wiring import stores as wiring
from angzarr.wiring.context import AppContext
from angzarr.wiring.dlq_rules import DeadLetterRules
from angzarr.wiring.flow_control import guard_of
from angzarr.wiring.operations import Operations
from angzarr.wiring.process import ProcessParts

#: Arguments that are no settings.
_ARGUMENTS = ("config", "rules", "verdicts", "hooks")

P = ParamSpec("P")
R = TypeVar("R")


def _of(part: str, method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """The *method* of the part that an app holds as *part*, for the app."""

    @wraps(method)
    def call(app: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return method(getattr(app, part), *args, **kwargs)

    return call


def _awaited(
    part: str, method: Callable[Concatenate[EventPublisher, P], R]
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """The app's method like *method* as a coroutine function; the app holds its threads as *part*.

    What a subclass has in its place is what is called.
    """

    @wraps(method)
    async def call(app: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        threads: AsyncPublisher = getattr(app, part)
        publish: Callable[P, R] = getattr(app, method.__name__)
        return await threads.run(partial(publish, *args, **kwargs))

    call.__name__ = f"a{method.__name__}"
    call.__qualname__ = f"Angzarr.{call.__name__}"
    call.__doc__ = f"""Do as `{method.__name__}` does while the event loop goes on.

        It takes, returns and raises the same, and the context goes along. THREADS calls publish
        at a time, the others wait for their turn. Awaited in turn, calls keep their order; side by
        side they have none. A call that is cancelled before its turn has sent nothing; later it
        may have, and publishing again with the same *id* is safe. Do not change the event while
        it is awaited.
        """
    return call


class Angzarr(Celery):
    """A Celery app with one executor for every task: claimed, retried, dead-lettered, replayed.

    *broker*, *backend* and every other Celery argument mean what they mean to Celery. *store*
    is where claims live, *dlq* where dead letters go, *ledger* the analysis worker's database,
    *books* that of event books;
    *config* names a YAML file (or the variable ANGZARR_CONFIG does). Every other setting is an
    argument too (``dashboard``, ``prefix``, …), and so is every setting of Celery's. File and
    environment win over arguments. Raises ConfigurationError for what cannot work.
    """

    amqp_cls = "angzarr.adapters.celery.publish.amqp:AngzarrAMQP"
    events_cls = "angzarr.adapters.celery.worker.broadcasts:NonBlockingEvents"
    control_cls = "angzarr.adapters.celery.worker.broadcasts:Control"

    #: What operators and tools do with the app.
    ops: Operations
    _task_class: Any = None

    def __init__(
        self,
        main: str | None = None,
        *,
        store: str | None = None,
        dlq: Mapping[str, Any] | None = None,
        ledger: str | None = None,
        books: str | None = None,
        facts: Mapping[str, Any] | None = None,
        retry: Mapping[str, Any] | None = None,
        routes: Mapping[str, Any] | None = None,
        flow: Mapping[str, Any] | None = None,
        ordering: Mapping[str, Any] | None = None,
        health: Mapping[str, Any] | None = None,
        soft_shutdown_timeout: float | None = None,
        config: str | os.PathLike[str] | None = None,
        rules: Sequence[Rule] = (),
        verdicts: Sequence[VerdictRule] = (),
        hooks: Sequence[Hook] = (),
        **others: Any,
    ) -> None:
        forks.guard()
        given = {
            "store": store,
            "dlq": dlq,
            "ledger": ledger,
            "books": books,
            "facts": facts,
            "retry": retry,
            "routes": routes,
            "flow": flow,
            "ordering": ordering,
            "health": health,
            "soft_shutdown_timeout": soft_shutdown_timeout,
            **{name: others.pop(name) for name in SETTINGS & others.keys()},
        }
        check_app_options(others, (*SETTINGS, *_ARGUMENTS), others.get("namespace"))
        self._hold(
            AppContext.of(
                load(given, config),
                main=main,
                broker=self._broker_url,
                rules=tuple(rules),
                verdicts=tuple(verdicts),
                hooks=tuple(hooks),
                chance=chance,
            )
        )
        super().__init__(main, **others)
        self._escalations.register(self.handler, self._parts.poster.get)
        self.on_after_configure.connect(self._runtime.lay_defaults, weak=False)
        if self.configured:  # by a fixup, or by a subclass in `on_init`
            self._runtime.lay_defaults()
        self.steps["worker"].update((StartStep, ShutdownStep, RejectedMessageStep))
        signals.worker_process_shutdown.connect(self._runtime.close, weak=False)
        signals.beat_init.connect(end_between_rounds, weak=False)
        if self.settings.logs == "structured":
            wiring.dress_celery_logs()

    def _hold(self, context: AppContext) -> None:
        """Make the parts; they get what they need of each other, and never the app."""
        self._celery_tasks = tasks = CeleryTasks(self)
        self._context = context
        self._async_publisher = AsyncPublisher()
        self._escalations = Escalations(context, self.publish)
        outbox = CeleryOutbox(self, self.publish_many, self.escalate)
        self._parts = parts = ProcessParts(context, self, outbox)
        sender = CelerySender(self, Angzarr.send_task)
        self._publisher = EventPublisher(context, sender, parts.configuration.get)
        self._registry = registry = HandlerRegistry(context, tasks)
        self._sagas = SagaRegistry(parts, registry, tasks, self.handler)
        self._projections = ProjectionRegistry(parts, registry, tasks)
        self._commands = Commands(parts)
        self._letter_rules = DeadLetterRules(parts)
        self.ops = Operations(parts, self._letter_rules)
        self._runtime = WorkerLife(parts, self.ops)

    def _broker_url(self) -> str:
        given = self.conf.broker_url or "amqp://guest@localhost//"
        return given if isinstance(given, str) else ";".join(given)

    # -- for handlers and publishers ---------------------------------------------------------

    handler = _of("_registry", HandlerRegistry.handler)
    aggregate = _of("_sagas", SagaRegistry.aggregate)
    saga = _of("_sagas", SagaRegistry.saga)
    process_manager = _of("_sagas", SagaRegistry.process_manager)
    projection = _of("_projections", ProjectionRegistry.projection)
    publish = _of("_publisher", EventPublisher.publish)
    publish_many = _of("_publisher", EventPublisher.publish_many)
    apublish = _awaited("_async_publisher", EventPublisher.publish)
    apublish_many = _awaited("_async_publisher", EventPublisher.publish_many)
    send_command = _of("_commands", Commands.send_command)
    execute = _of("_commands", Commands.execute)
    execute_with_retry = _of("_commands", Commands.execute_with_retry)
    book = _of("_commands", Commands.book)
    load = _of("_commands", Commands.load)
    escalate = _of("_escalations", Escalations.escalate)
    dlq_rule = _of("_letter_rules", DeadLetterRules.dlq_rule)
    add_dlq_rule = _of("_letter_rules", DeadLetterRules.add_dlq_rule)
    replace_dlq_classifier = _of("_letter_rules", DeadLetterRules.replace_dlq_classifier)

    @overload
    def undo(self, function: UndoFunction, /) -> UndoFunction: ...

    @overload
    def undo(self, /, *, name: str) -> Callable[[UndoFunction], UndoFunction]: ...

    def undo(self, function: Any = None, /, *, name: str | None = None) -> Any:
        """Register a function that undoes a finished step; see `HandlerRegistry.undo`."""
        undo: Callable[..., Any] = self._registry.undo
        return undo(function, name=name)

    def breaker(
        self,
        name: str,
        *,
        key: object = None,
        errors: Errors = Exception,
        fallback: Callable[..., Any] | None = None,
    ) -> BreakerGuard:
        """The breaker *name* for use around calls, in a handler or anywhere else.

        A decorator for sync and async functions, a context manager for ``with`` and ``async
        with``, or ``.call(function, …)``. Only *errors* that say the dependency is ill count.
        Refused calls raise CircuitOpenError, or *fallback* is called with the same arguments.
        Each *key*, any text, has a breaker of its own with the settings of *name*.
        Raises ConfigurationError for a name that no breaker can have.
        """
        (guard,) = guards({name: errors})
        keyed_guard = guard._replace(name=keyed(name, key))
        return guard_of(self._context, lambda: self._parts.flow, None, keyed_guard, fallback)

    @property
    def settings(self) -> Settings:
        """The settings, as file, environment and arguments say them."""
        return self._context.settings

    @property
    def handlers(self) -> Handlers:
        """The handlers that this process has imported."""
        return self._context.handlers

    @property
    def decider(self) -> Decider:
        """The aggregates of this process, for callers who wait for the answer (spec C3)."""
        return self._commands.decider

    @property
    def facts(self) -> FactLog:
        """Where this process appends facts that belong to no delivery."""
        return self._parts.facts

    # -- Celery's own names ------------------------------------------------------------------

    @property
    def Task(self) -> Any:  # noqa: N802 - Celery's name
        """The base class of this app's tasks, run by the executor: `task_cls`, or one assigned."""
        if self._task_class is None:
            self._task_class = self.create_task_cls()
        return self._task_class

    @Task.setter
    def Task(self, kind: Any) -> None:  # noqa: N802
        self._task_class = with_road(kind)

    def create_task_cls(self) -> Any:
        """A base class for tasks that the executor runs: the user's, or that of Django's fixup."""
        return self.subclass_with_self(
            with_road(self.task_cls), name="Task", attribute="_app", keep_reduce=True, abstract=True
        )

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
        check_task_options(options, lambda: self._celery_tasks.base_of(options))
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
        self._registry.take_task(task, is_async=inspect.iscoroutinefunction(fun))
        return task

    def register_task(self, task: Any, **options: Any) -> Any:
        """Register a class-based task; its class gets the executor's base if it lacks that."""
        made = put_on_road(task() if inspect.isclass(task) else task, self.Task)
        registered = super().register_task(made, **options)
        open_body(registered)
        is_async = inspect.iscoroutinefunction(type(registered).run)
        self._registry.take_task(registered, is_async=is_async)
        return registered

    def _warn_if_duplicate_task_name(self, task: Any, fun: Any, name: str) -> None:
        """Refuse what Celery only warns of: one of two functions would never be called."""
        first = getattr(task, "_decorated_fun", None)
        if first is None or first is fun or self._celery_tasks.keeps_first(name, first, fun):
            return
        raise DuplicateHandler(twice(name, first, fun))

    def _warn_duplicate_task_name(
        self, name: str, existing: str, new: str, _consequence: str
    ) -> NoReturn:
        """Refuse a class-based task under a name that is taken, in place of a warning."""
        msg = f"{name!r} is the name of {existing} and of {new}: {RENAME}"
        raise DuplicateHandler(msg)

    def send_task(self, name: str, *args: Any, **options: Any) -> Any:
        """Send a task as Celery does; raises BrokerUnavailable if the broker did not confirm it."""
        return self._publisher.send_task(super().send_task, name, *args, **options)

    def now(self) -> datetime:
        """The fleet's time in the app's zone: Celery counts ``eta`` and ``expires`` from it.

        The machine's own clock may be wrong, and readers of those go by the store's.
        """
        return SystemClock().now().astimezone(self.timezone)

    def close(self) -> None:
        """Close what this process opened, Celery's and ours; a later use opens it again.

        It waits for the events that coroutines are publishing.
        """
        self._async_publisher.close()
        self._runtime.close()
        super().close()
