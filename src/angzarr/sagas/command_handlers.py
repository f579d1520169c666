"""Chains: what deliveries of commands, notifications and events of sagas do (spec C1 to C5).

A command is decided and kept; its events are published; a saga answers them with commands; the
rejection of one goes back to its source. Each of these is a delivery of its own, like any other.
What it decides is kept before anything is sent, and whatever is sent has an id that follows
from its cause: a delivery that comes again repeats the consequences, not the decision.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, timedelta
from typing import Any, Final, Protocol

from angzarr.aggregates.aggregate import AggregateType
from angzarr.aggregates.book import Book, Decision, EventBooks, check_address
from angzarr.aggregates.command import Command, Origin, id_after, origin_of
from angzarr.aggregates.decider import Decider, decide_once
from angzarr.clock import Clock
from angzarr.delivery.context import Context
from angzarr.delivery.sealed_origin import SealedOrigin, origin_in
from angzarr.errors import (
    CommandAbortedError,
    CommandRejectedError,
    DecodeError,
    InvalidDomainName,
    InvalidRoot,
    Postpone,
    PublishIncomplete,
    SequenceConflictError,
    SequenceMismatch,
    Skip,
    Unavailable,
    text_of,
)
from angzarr.events.event import Event
from angzarr.events.headers import check_sequence
from angzarr.sagas.compensating import Compensating, CompensationTurn
from angzarr.sagas.log import RejectionLog, case_of
from angzarr.sagas.outbox import Outbox, check_depth, read_commands, written_commands
from angzarr.sagas.rejection import Rejection, from_event, rejection_of
from angzarr.sagas.saga import ProcessManager, Saga, origin_for, reaction

#: How long a delivery waits that finds books or broker away; it uses no attempt.
AWAY: Final = timedelta(seconds=3)
#: After this it is an error like any other, and at last a dead letter.
LONGEST_WAIT: Final = timedelta(days=1)


class RejectionMeters(Protocol):
    """Counts rejections; it must not raise, and not take long."""

    def rejected(self, saga: str, domain: str) -> None:
        """Count a command of *saga* that an aggregate of *domain* rejected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chains:
    """The chains of one process. Safe to use from threads."""

    books: EventBooks
    rejections: RejectionLog
    decider: Decider
    compensating: Compensating
    outbox: Outbox
    meters: RejectionMeters
    clock: Clock
    #: Events and commands that a chain may have before a circle is suspected.
    max_depth: int

    def carry_out(self, context: Context) -> dict[str, Any]:
        """Decide the command that *context* delivers, and publish the events it leads to.

        A rejection goes to the source, if a saga sent the command; else it is raised.
        """
        check_sequence(context.headers)
        command = Command(event=context.event, origin=_origin(context.headers))
        check_depth(command.event, self.max_depth)
        with _patient(context, self.clock):
            try:
                decision = self._decide(command)
            except CommandRejectedError as rejected:
                self._notify(command, text_of(rejected), origin_in(context.headers))
                raise
            self.outbox.publish(decision.events)
        return _summary(decision)

    def _decide(self, command: Command) -> Decision:
        """The decision; a stale command that commutes is tried on what is there now."""
        try:
            return self.decider.execute(command)
        except SequenceConflictError:
            if command.expected is None:  # others were always quicker: that may pass
                raise
            return self.decider.execute(
                replace(command, event=replace(command.event, sequence=None))
            )
        except CommandAbortedError as aborted:
            if not aborted.review or aborted.expected is None or aborted.actual is None:
                raise
            strategy = self.decider.aggregate(command.address.domain).merge(command)
            raise SequenceMismatch(aborted.expected, aborted.actual, strategy) from aborted

    def _notify(self, command: Command, reason: str, sealed: SealedOrigin | None) -> None:
        """Notify the source of a rejected command, and raise Skip; nothing, if there is none."""
        if command.origin is None:
            return
        now = self.clock.now()
        rejection = rejection_of(command, command.origin, reason, now)
        self.outbox.tell(self._noted(replace(rejection, sealed=sealed)))
        self.meters.rejected(command.origin.saga, command.address.domain)
        msg = f"rejected, and {command.origin.source} is told: {reason}"
        raise Skip(msg)

    def _noted(self, rejection: Rejection) -> Rejection:
        """Note the case of *rejection* and return it with the time that was noted at first.

        A command that comes again is to say the same word for word: another body under the same
        id would be a conflict.
        """
        kept = self.rejections.note(case_of(rejection, rejection.rejected_at))
        return replace(rejection, rejected_at=kept.rejected_at.astimezone(UTC))

    def notified(self, kind: AggregateType, context: Context) -> str:
        """Let the source of a rejected command, one of *kind*, compensate.

        However deep that command was: it was checked, and so is whatever follows from this.
        """
        rejection = replace(from_event(context.event), sealed=origin_in(context.headers))
        if rejection.origin.source.domain != kind.domain:
            msg = f"the notification is for {rejection.origin.source}, not for {kind.domain!r}"
            raise DecodeError(msg)
        with _patient(context, self.clock):
            return self.compensating.compensate(kind, rejection, self._turn(context)).value

    def _turn(self, context: Context) -> CompensationTurn:
        return CompensationTurn(
            id=id_after(context.event.id, "flags", context.replay),
            is_final=context.is_final,
            max_depth=self.max_depth,
        )

    def manage(self, kind: type[ProcessManager[Any]], context: Context) -> dict[str, Any]:
        """Let a process manager answer the event that *context* delivers."""
        check_depth(context.event, self.max_depth)
        with _patient(context, self.clock):
            decision = self._managed(kind, context.event)
            self.outbox.publish(decision.events)
            self.outbox.send(read_commands((decision.notes or {}).get("commands")))
        return _summary(decision)

    def _managed(self, kind: type[ProcessManager[Any]], event: Event) -> Decision:
        """The decision of the process on *event*, kept before anything of it is sent."""
        address = kind.address_for(event)

        def decide(book: Book) -> Decision:
            asked = kind(book)
            origin = Origin(saga=kind.name, source=address, sequence=book.next_sequence)
            found = reaction(asked.react(event), event, kind.name, origin)
            return Decision(
                cause=event.id,
                events=tuple(asked.events_of(found.events, event)),
                notes={"commands": written_commands(found.commands)},
            )

        races = self.decider.races()
        return decide_once(self.books, kind, address, event.id, decide=decide, races=races)

    def close(self) -> None:
        """Let connections go; safe to call twice."""
        self.books.close()
        self.rejections.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reacting:
    """The services that sagas need, which keep no books. Safe to use from threads."""

    outbox: Outbox
    clock: Clock
    max_depth: int

    def react(self, kind: type[Saga], context: Context) -> int:
        """Let a saga answer the event that *context* delivers; return how many commands it sent."""
        event = context.event
        check_depth(event, self.max_depth)
        method = kind.methods.reacts_to[event.type]
        said = getattr(kind(event), method.name)(method.decode(event.data))
        found = reaction(said, event, kind.name, origin_for(event, kind.name))
        if found.events:
            kinds = ", ".join(type(one).__name__ for one in found.events)
            msg = f"{kind.__qualname__} answered with {kinds}: a saga returns Send, or nothing"
            raise TypeError(msg)
        with _patient(context, self.clock):
            self.outbox.send(found.commands)
        return len(found.commands)


def _origin(headers: Mapping[str, Any]) -> Origin | None:
    """The source of a command; None if no store could keep that place."""
    origin = origin_of(headers)
    try:
        if origin is not None:
            check_address(origin.source)
    except (InvalidDomainName, InvalidRoot):
        return None
    return origin


@contextmanager
def _patient(context: Context, clock: Clock) -> Iterator[None]:
    """Let a delivery wait, without an attempt, for whatever is away; not for ever.

    A broker that is there and will never take a message looks as if it were away.
    """
    try:
        yield
    except (Unavailable, PublishIncomplete) as away:
        began = context.delivery.first_attempt_at
        if began is not None and clock.now() - began > LONGEST_WAIT:
            raise
        raise Postpone(AWAY, text_of(away)) from away


def _summary(decision: Decision) -> dict[str, Any]:
    """The result of a command's task."""
    first = decision.events[0].sequence if decision.events else None
    return {"events": len(decision.events), "first_sequence": first}
