"""Commands are sent, or carried out here and now; books are read (spec C1 to C3)."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any, TypeVar

from angzarr.aggregates.aggregate import Aggregate
from angzarr.aggregates.book import Address, Book, Decision, check_address, root_text
from angzarr.aggregates.command import (
    Build,
    Command,
    Intent,
    check_event,
    check_expected,
    execute_with_retry,
    origin_headers,
    task_of,
)
from angzarr.aggregates.decider import CommandMismatch, Decider, read
from angzarr.clock import SystemClock
from angzarr.dead_letters.letter import DeadLetter, Reason
from angzarr.delivery.context import RUNNING
from angzarr.delivery.delivery import read as read_delivery
from angzarr.delivery.failure_policy import GIVEN_UP
from angzarr.errors import SequenceMismatch
from angzarr.events.event import Event, Priority, event_type_of, task_id_for, to_json
from angzarr.events.publication import celery_message
from angzarr.wiring.delivery import build_judge
from angzarr.wiring.process import ProcessParts

B = TypeVar("B", bound=Aggregate[Any])


class Commands:
    """Sends commands, or carries them out here and now, and reads books."""

    def __init__(self, parts: ProcessParts) -> None:
        self._parts = parts

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
        Raises InvalidRoot, InvalidDomainName, NotAnEvent, UnserializableEvent, BrokerUnavailable.
        """
        cause = running.event if (running := RUNNING.get()) is not None else None
        made = _command(
            command,
            check_address(Address(domain, root_text(root), edition or "")),
            cause,
            expected=expected,
            id=str(id or uuid.uuid4()),
            correlation_id=correlation_id,
            tenant_id=tenant_id,
            priority=Priority(priority),
        )
        self._parts.outbox.send([made])
        return made

    def execute(self, command: Command) -> Decision:
        """Carry out *command* here and now, and publish the events it leads to.

        Executing it again repeats the decision and publishes the same events. Raises what
        `Decider.execute` and `publish_many` do.
        """
        return self._published(command.address, self.decider.execute(command))

    def execute_with_retry(self, intent: Intent, build_command: Build) -> Decision:
        """Do as the function of this name, against the aggregates of this process.

        Events are published; a command that was not taken in all attempts is a dead letter, from
        which it can be replayed.
        """
        decision = execute_with_retry(
            intent, build_command, self.decider, dead_letter=self.bury_command
        )
        return self._published(intent.address, decision)

    def _published(self, address: Address, decision: Decision) -> Decision:
        """Publish the decision made here; workers do it where this process cannot (`Relay`)."""
        self._parts.outbox.publish(decision.events)
        self._parts.chains.get().books.sent(address, decision.cause)
        return decision

    @property
    def decider(self) -> Decider:
        """The aggregates of this process, for callers who wait for the answer (spec C3).

        A command that a person must look at becomes a dead letter. It publishes nothing: workers
        that run aggregates do, half a minute later.
        """
        return replace(self._parts.chains.get().decider, unsent=True, for_review=self._review)

    def _review(self, mismatch: CommandMismatch) -> None:
        command, expected, actual, strategy = mismatch
        self.bury_command(command, SequenceMismatch(expected, actual, strategy))

    def bury_command(self, command: Command, error: Exception) -> None:
        """Make a dead letter of *command*, which was not delivered; raises if a server is away."""
        self._parts.salvage.get().keep(letter_of_command(self._parts, command, error))

    def book(self, domain: str, root: str | uuid.UUID, edition: str = "") -> Book:
        """The whole book of an aggregate, an empty one if it was never written."""
        return self._parts.chains.get().decider.book(Address(domain, root_text(root), edition))

    def load(self, kind: type[B], root: str | uuid.UUID, edition: str = "") -> B:
        """An aggregate as it is now; changes to it are kept nowhere."""
        address = check_address(Address(kind.domain, root_text(root), edition))
        return kind(read(self._parts.chains.get().books, kind, address).book)


def letter_of_command(parts: ProcessParts, command: Command, error: Exception) -> DeadLetter:
    """The letter of *command* as its delivery would have left it, to be replayed."""
    task = task_of(command.address.domain, command.event.type)
    handler = parts.context.handlers.get(task)
    queue = parts.routing.queue_for(task)
    message = celery_message(
        task,
        task_id_for(command.id, task),
        command.event,
        queue,
        origin=parts.context.main or "angzarr",
        headers=origin_headers(command.origin),
    )
    delivery = read_delivery(message, args=[command.event.data], kwargs={}, token="", owner="")
    mismatch = isinstance(error, SequenceMismatch)
    reason = Reason.SEQUENCE_MISMATCH if mismatch else Reason.EXHAUSTED
    judge = build_judge(parts.context, SystemClock())
    seen = GIVEN_UP if handler is None else judge.classify(delivery, handler, error)
    return judge.dead(delivery, handler, error, reason, seen).letter


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
    """The command that carries *payload*, in the flow of *cause*."""
    check_event(payload)
    flow = None if cause is None else cause.correlation_id or cause.id
    event = Event(
        id=id,
        type=event_type_of(payload),
        data=to_json(payload),
        domain=address.domain,
        root=address.root,
        edition=address.edition or None,
        sequence=check_expected(expected),
        correlation_id=correlation_id or flow or id,
        causation_id=None if cause is None else cause.id,
        depth=0 if cause is None else cause.depth + 1,
        config_pins={} if cause is None else dict(cause.config_pins),
        **said,
    )
    return Command(event=event)
