"""Commanding: aggregates, sagas and process managers become handlers; commands are sent (C1 to C4).

A command is a message to one task, ``command.<domain>.<type>``; whoever sends it need not import
what takes it, only route it (Celery's ``task_routes``).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from angzarr.adapters.celery.binding import body_of
from angzarr.adapters.celery.outbox import CeleryOutbox
from angzarr.aggregates.aggregate import Aggregate, AggregateType
from angzarr.aggregates.book import Address, Book, Decision, check_address
from angzarr.aggregates.command import Command, task_of
from angzarr.aggregates.deciding import read
from angzarr.aggregates.declaring import Method
from angzarr.aggregates.execute import Build, Intent, execute_with_retry
from angzarr.chains import Chains, Reacting
from angzarr.delivery.context import RUNNING, Context
from angzarr.delivery.delivery import Delivery
from angzarr.delivery.handlers import Bind
from angzarr.errors import ConfigurationError, Skip
from angzarr.escalating import Escalating
from angzarr.events.codec import event_type_of, to_json
from angzarr.events.event import Event, Priority, check_domain
from angzarr.per_process import OncePerProcess
from angzarr.sagas.outbox import Outbox
from angzarr.sagas.rejection import from_event, notification_task
from angzarr.sagas.saga import ProcessManager, Saga

B = TypeVar("B", bound=Aggregate[Any])
C = TypeVar("C")
A = TypeVar("A", bound=AggregateType)
S = TypeVar("S", bound=type[Saga])
P = TypeVar("P", bound=type[ProcessManager[Any]])


class Commanding(Escalating):
    """What an app does with commands."""

    _chains: OncePerProcess[Chains]
    _reacting: OncePerProcess[Reacting]
    #: By domain; process managers have their name for a domain.
    aggregates: dict[str, AggregateType]

    def aggregate(
        self,
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
            kind.domain, kind.snapshot_every = domain, snapshot_every
            kind.check()
            self._keep(kind)
            self._take_commands(kind, queue, options)
            return kind

        return register

    def saga(
        self, name: str, *, source: str | None = None, queue: str | None = None, **options: Any
    ) -> Callable[[S], S]:
        """Register a saga: each of its methods takes the events of a type.

        Events of other domains than *source* are skipped. The name stands in ids: it must stay as
        it is while events are on their way.
        """
        check_domain(name)
        if source is not None:
            check_domain(source)

        def register(kind: S) -> S:
            kind.name = name
            kind.check()
            for event_type, method in kind.methods.reacts_to.items():
                self._take(
                    f"saga.{name}.{event_type}",
                    _binding(self._reacting, _data(method), _of_domain(source, _reacting(kind))),
                    decode=method.decode,
                    event_type=event_type,
                    domain=source,
                    queue=queue,
                    **options,
                )
            return kind

        return register

    def process_manager(
        self, name: str, *, queue: str | None = None, snapshot_every: int = 0, **options: Any
    ) -> Callable[[P], P]:
        """Register a process manager; *name* is the domain of its books, too."""
        check_domain(name)

        def register(kind: P) -> P:
            kind.name = kind.domain = name
            kind.snapshot_every = snapshot_every
            kind.check()
            self._keep(kind)
            for event_type, method in kind.methods.reacts_to.items():
                self._take(
                    f"process.{name}.{event_type}",
                    _binding(self._chains, _data(method), _managing(kind)),
                    decode=method.decode,
                    event_type=event_type,
                    domain=name,
                    queue=queue,
                    **options,
                )
            self._take_commands(kind, queue, options)
            return kind

        return register

    def _keep(self, kind: AggregateType) -> None:
        other = self.aggregates.setdefault(kind.domain, kind)
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
        for command, method in kind.methods.handles.items():
            bind = _binding(self._chains, _data(method), Chains.carry_out)
            task = task_of(kind.domain, command)
            self._take(task, bind, domain=kind.domain, queue=queue, **options)
        bind = _binding(self._chains, from_event, _notifying(kind))
        task = notification_task(kind.domain)
        self._take(task, bind, domain=kind.domain, queue=queue, **options)

    def _take(self, name: str, bind: Bind, **options: Any) -> None:
        self.take(name, bind, _called_directly, **options)

    # -- for whoever asks --------------------------------------------------------------------

    def send_command(
        self,
        command: object,
        *,
        domain: str,
        root: str | uuid.UUID,
        edition: str | None = None,
        expected: int | None = None,
        id: str | uuid.UUID | None = None,
        correlation_id: str | None = None,
        tenant_id: str | None = None,
        priority: Priority | str = Priority.DEFAULT,
    ) -> Command:
        """Send *command* to an aggregate and return it, once the broker confirmed it.

        *expected* is where the aggregate's book is believed to be (spec C2). Sending it again
        with the same *id* is safe. A command that a handler sends continues its event's flow.
        Raises InvalidRoot, InvalidDomainName, UnserializableEvent, BrokerUnavailable.
        """
        cause = running.event if (running := RUNNING.get()) is not None else None
        made = _command(
            command,
            check_address(Address(domain, str(root), edition or "")),
            cause,
            expected=expected,
            id=str(id or uuid.uuid4()),
            correlation_id=correlation_id,
            tenant_id=tenant_id,
            priority=Priority(priority),
        )
        self.outbox.send([made])
        return made

    def execute(self, command: Command) -> Decision:
        """Carry out *command* here and now, and publish the events it leads to.

        Executing it again repeats the decision and publishes the same events. Raises what
        `Decider.execute` and `publish_many` do.
        """
        chains = self._chains.get()
        decision = chains.decider.execute(command)
        chains.outbox.publish(decision.events)
        return decision

    def execute_with_retry(self, intent: Intent, build_command: Build) -> Decision:
        """Do as the function of this name, against the aggregates of this process.

        Events are published; a command that was not taken in all attempts is a dead letter, from
        which it can be replayed.
        """
        chains = self._chains.get()
        decision = execute_with_retry(
            intent, build_command, chains.decider, dead_letter=self.bury_command
        )
        chains.outbox.publish(decision.events)
        return decision

    def book(self, domain: str, root: str | uuid.UUID, edition: str = "") -> Book:
        """Return the whole book of an aggregate, an empty one if nobody wrote it."""
        return self._chains.get().decider.book(Address(domain, str(root), edition))

    def load(self, kind: type[B], root: str | uuid.UUID, edition: str = "") -> B:
        """Return an aggregate as it is now; what is done to it is kept nowhere."""
        address = check_address(Address(kind.domain, str(root), edition))
        return kind(read(self._chains.get().books, kind, address).book)

    @property
    def outbox(self) -> Outbox:
        """What sends commands and notifications."""
        return CeleryOutbox(self)


def _command(
    payload: object,
    address: Address,
    cause: Event | None,
    *,
    expected: int | None,
    correlation_id: str | None,
    id: str,
    **said: Any,
) -> Command:
    """Return the command that carries *payload*, in the flow of *cause*."""
    flow = None if cause is None else cause.correlation_id or cause.id
    event = Event(
        id=id,
        type=event_type_of(payload),
        data=to_json(payload),
        domain=address.domain,
        root=address.root,
        edition=address.edition or None,
        sequence=expected,
        correlation_id=correlation_id or flow or id,
        causation_id=None if cause is None else cause.id,
        depth=0 if cause is None else cause.depth + 1,
        **said,
    )
    return Command(event=event)


def _binding(
    road: OncePerProcess[C], decode: Callable[[Event], object], run: Callable[[C, Context], Any]
) -> Bind:
    """Bind deliveries to *run*; what *decode* refuses is refused before anything is claimed."""

    def bind(delivery: Delivery, context: Context) -> Callable[[], Any]:
        body_of(delivery)
        decode(delivery.event)
        return lambda: run(road.get(), context)

    return bind


def _reacting(kind: type[Saga]) -> Callable[[Reacting, Context], Any]:
    return lambda road, context: road.react(kind, context)


def _managing(kind: type[ProcessManager[Any]]) -> Callable[[Chains, Context], Any]:
    return lambda chains, context: chains.manage(kind, context)


def _notifying(kind: AggregateType) -> Callable[[Chains, Context], Any]:
    return lambda chains, context: chains.notified(kind, context)


def _data(method: Method) -> Callable[[Event], object]:
    return lambda event: method.decode(event.data)


def _of_domain(domain: str | None, run: Callable[[C, Context], Any]) -> Callable[[C, Context], Any]:
    """Let *run* have the events of *domain* only."""

    def checked(road: C, context: Context) -> Any:
        if domain is not None and context.event.domain != domain:
            msg = (
                f"it is of domain {context.event.domain!r}, and the saga takes those of {domain!r}"
            )
            raise Skip(msg)
        return run(road, context)

    return checked


def _called_directly(_data: Any) -> None:
    msg = "this task runs in a worker, by a message: send the command or the event instead"
    raise ConfigurationError(msg)
