"""Aggregates, sagas and process managers become handlers (spec C1 to C5).

A command is a message to one task, ``command.<domain>.<type>``; its sender need not import
its handler, only route it (Celery's ``task_routes``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from angzarr.adapters.celery.worker.binding import body_of
from angzarr.adapters.celery.worker.task_classes import CeleryTasks
from angzarr.aggregates.aggregate import Aggregate, AggregateType
from angzarr.aggregates.command import is_command, task_of
from angzarr.aggregates.decorators import Method
from angzarr.app.registry import HandlerRegistry, called_directly, check_is, give_name
from angzarr.delivery.context import Context
from angzarr.delivery.delivery import Delivery
from angzarr.delivery.handlers import Bind
from angzarr.errors import ConfigurationError, DecodeError, Skip
from angzarr.events import headers as names
from angzarr.events.event import Event, check_domain
from angzarr.runtime.processes import OncePerProcess
from angzarr.sagas.command_handlers import Chains, Reacting
from angzarr.sagas.escalation import FAILURE_HANDLER, LONGEST_REASON, SagaCompensationFailed, cut
from angzarr.sagas.rejection import from_event, notification_task
from angzarr.sagas.saga import ProcessManager, Saga
from angzarr.wiring import stores as wiring
from angzarr.wiring.process import ProcessParts
from angzarr.wiring.protection import without_secrets

C = TypeVar("C")
A = TypeVar("A", bound=AggregateType)
S = TypeVar("S", bound=type[Saga])
P = TypeVar("P", bound=type[ProcessManager[Any]])


class SagaRegistry:
    """Registers aggregates, sagas and process managers; *handler* is that of the app."""

    def __init__(
        self,
        parts: ProcessParts,
        registry: HandlerRegistry,
        tasks: CeleryTasks,
        handler: Callable[..., Any],
    ) -> None:
        self._context = parts.context
        self._parts = parts
        self._registry = registry
        self._tasks = tasks
        self._handler = handler

    def aggregate(
        self,
        /,
        domain: str,
        *,
        queue: str | None = None,
        snapshot_every: int = 0,
        **options: Any,
    ) -> Callable[[A], A]:
        """Register a class for the aggregates of *domain*: its commands and notifications.

        A snapshot is kept every *snapshot_every* events. *options* are those of `handler`
        (policy, limit, breaker, …) and of Celery's tasks. Raises ConfigurationError,
        DuplicateHandler or InvalidDomainName at once.
        """
        check_domain(domain)

        def register(kind: A) -> A:
            check_is(kind, Aggregate)
            if (first := self._context.aggregates.get(domain)) and self._tasks.keeps_first(
                domain, first, kind
            ):
                return cast("A", first)
            if kind.methods.reacts_to:
                msg = (
                    f"{kind.__qualname__} reacts to events; an aggregate takes commands only:"
                    " derive it from ProcessManager and register it with app.process_manager"
                )
                raise ConfigurationError(msg)
            give_name(kind, "domain", domain)
            kind.snapshot_every = snapshot_every
            kind.check()
            self._keep(kind)
            self._take_commands(kind, queue, options)
            return kind

        return register

    def saga(
        self, /, name: str, *, source: str | None = None, queue: str | None = None, **options: Any
    ) -> Callable[[S], S]:
        """Register a saga: each of its methods takes the events of a type.

        Events of other domains than *source* are skipped. The name stands in ids: it must stay as
        it is while events are on their way.
        """
        check_domain(name)
        if source is not None:
            check_domain(source)

        def register(kind: S) -> S:
            check_is(kind, Saga)
            if (first := self._context.sagas.get(name)) and self._tasks.keeps_first(
                name, first, kind
            ):
                return cast("S", first)
            self._take_name(kind, name)
            kind.check()
            for event_type, method in kind.methods.reacts_to.items():
                self._take(
                    f"saga.{name}.{event_type}",
                    _binding(
                        self._parts.reacting,
                        _fits(method, event_type),
                        _of_domain(source, _reacting(kind)),
                    ),
                    decode=method.decode,
                    event_type=event_type,
                    domain=source,
                    queue=queue,
                    **options,
                )
            return kind

        return register

    def process_manager(
        self, /, name: str, *, queue: str | None = None, snapshot_every: int = 0, **options: Any
    ) -> Callable[[P], P]:
        """Register a process manager; *name* is the domain of its books, too."""
        check_domain(name)

        def register(kind: P) -> P:
            check_is(kind, ProcessManager)
            if (first := self._context.sagas.get(name)) and self._tasks.keeps_first(
                name, first, kind
            ):
                return cast("P", first)
            self._take_name(kind, name)
            give_name(kind, "domain", name)
            kind.snapshot_every = snapshot_every
            kind.check()
            self._keep(kind)
            for event_type, method in kind.methods.reacts_to.items():
                self._take(
                    f"process.{name}.{event_type}",
                    _binding(self._parts.chains, _fits(method, event_type), _managing(kind)),
                    decode=method.decode,
                    event_type=event_type,
                    domain=name,
                    queue=queue,
                    **options,
                )
            self._take_commands(kind, queue, options)
            return kind

        return register

    def _watch_failures(self) -> None:
        """Register what counts and logs that compensations failed (spec C6), once."""
        if self._context.handlers.get(FAILURE_HANDLER) is not None:
            return

        def saga_failures(event: SagaCompensationFailed, ctx: Context) -> None:
            source = event.triggering_aggregate
            told = {
                "saga_name": event.saga_name,
                "triggering_domain": source.domain,
                "triggering_root": source.root,
                "rejection_reason": self._said(event.rejection_reason),
                "compensation_failure_reason": self._said(event.compensation_failure_reason),
                "correlation_id": ctx.event.correlation_id,
            }
            wiring.write_error("angzarr.sagas", "saga_compensation_failed", told)
            wiring.saga_meters().gave_up(event.saga_name)

        domain = self._context.settings.saga_compensation.fallback_domain
        self._handler(SagaCompensationFailed, domain=domain, name=FAILURE_HANDLER)(saga_failures)

    def _said(self, text: str) -> str:
        """The words that a line of the log has for *text*: cut, and without secrets."""
        return cut(without_secrets(self._context.settings.dlq, text), LONGEST_REASON)

    def _take_name(self, kind: type[Saga | ProcessManager[Any]], name: str) -> None:
        """Give *kind* its name, which must be unique: ids are made of it."""
        give_name(kind, "name", name)
        other = self._context.sagas.setdefault(name, kind)
        if other is not kind:
            msg = (
                f"{name!r} is the name of {other.__qualname__} and of {kind.__qualname__}, and the"
                " ids of their commands are made of it: give each a name of its own"
            )
            raise ConfigurationError(msg)

    def _keep(self, kind: AggregateType) -> None:
        other = self._context.aggregates.setdefault(kind.domain, kind)
        if other is not kind:
            msg = (
                f"the domain {kind.domain!r} has two aggregates, {other.__qualname__} and"
                f" {kind.__qualname__}: its books can be those of one only"
            )
            raise ConfigurationError(msg)

    # -- as handlers -------------------------------------------------------------------------

    def _take_commands(
        self, kind: AggregateType, queue: str | None, options: Mapping[str, Any]
    ) -> None:
        """Register what carries out the commands of *kind*, and what tells it of rejections."""
        self._watch_failures()
        for command, method in kind.methods.handles.items():
            fits = _fits(method, command, kind.domain)
            bind = _binding(self._parts.chains, fits, Chains.carry_out)
            task = task_of(kind.domain, command)
            self._take(task, bind, domain=kind.domain, queue=queue, **options)
        bind = _binding(self._parts.chains, from_event, _notifying(kind))
        task = notification_task(kind.domain)
        self._take(task, bind, domain=kind.domain, queue=queue, **options)

    def _take(self, name: str, bind: Bind, **options: Any) -> None:
        self._registry.take(name, bind, called_directly, **options)


def _binding(
    road: OncePerProcess[C], decode: Callable[[Event], object], run: Callable[[C, Context], Any]
) -> Bind:
    """Bind deliveries to *run*; what *decode* refuses is refused before anything is claimed."""

    def bind(delivery: Delivery, context: Context) -> Callable[[], Any]:
        body_of(delivery)
        if is_command(delivery.handler):
            _expects(delivery.event, delivery.message.headers)
        decode(delivery.event)
        return lambda: run(road.get(), context)

    return bind


def _reacting(kind: type[Saga]) -> Callable[[Reacting, Context], Any]:
    return lambda road, context: road.react(kind, context)


def _managing(kind: type[ProcessManager[Any]]) -> Callable[[Chains, Context], Any]:
    return lambda chains, context: chains.manage(kind, context)


def _notifying(kind: AggregateType) -> Callable[[Chains, Context], Any]:
    return lambda chains, context: chains.notified(kind, context)


def _expects(event: Event, headers: Mapping[str, Any]) -> None:
    """Refuse a command whose expectation cannot be read: unchecked it could be carried out."""
    if event.sequence is None and headers.get(names.SEQUENCE) is not None:
        msg = f"{names.SEQUENCE} is not a sequence: {headers[names.SEQUENCE]!r:.50}"
        raise DecodeError(msg)


def _fits(method: Method, kind: str, domain: str | None = None) -> Callable[[Event], object]:
    """A decoder that refuses events not of the type *kind*, and commands to another domain.

    What is carried out is to be what the message's task is known, switched and limited by.
    """

    def decode(event: Event) -> object:
        if event.type != kind or domain not in (None, event.domain):
            of = "" if domain is None else f" of domain {domain!r}"
            msg = f"this task takes {kind!r}{of}, and the message says that it is another"
            raise DecodeError(msg)
        return method.decode(event.data)

    return decode


def _of_domain(domain: str | None, run: Callable[[C, Context], Any]) -> Callable[[C, Context], Any]:
    """Let *run* have the events of *domain* only."""

    def checked(road: C, context: Context) -> Any:
        if domain is not None and context.event.domain != domain:
            msg = f"the saga takes events of the domain {domain!r}, not {context.event.domain!r}"
            raise Skip(msg)
        return run(road, context)

    return checked
