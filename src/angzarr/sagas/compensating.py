"""Compensation of sagas: a source hears of a rejection, and its answer is made true (spec C4, C5).

Compensation is work that can fail: it runs in a delivery of its own, and what cannot be done now
is retried, and at last becomes a dead letter. Whatever it publishes has ids that follow from the
rejection, so that doing it again is harmless.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Final, Protocol

from angzarr.aggregates.aggregate import Aggregate, AggregateType
from angzarr.aggregates.book import Book, Decision, EventBooks, Stale, Write, check_address
from angzarr.aggregates.command import id_after
from angzarr.aggregates.decider import Races, decide_once
from angzarr.aggregates.decorators import Rejected
from angzarr.aggregates.wire_form import address_of
from angzarr.clock import Clock
from angzarr.errors import (
    CompensationFailed,
    DecodeError,
    Unavailable,
    UnknownCommand,
    text_of,
)
from angzarr.events.event import Event
from angzarr.resilience.backoff import Policy
from angzarr.resilience.policies import POLICIES
from angzarr.sagas.escalation import failure_event
from angzarr.sagas.log import (
    MAX_TEXT,
    KeptFlags,
    RejectionLog,
    RejectionStatus,
    case_of,
    read_flags,
    written_flags,
)
from angzarr.sagas.outbox import Outbox, check_depth, deeper, read_commands, written_commands
from angzarr.sagas.rejection import CompensationContext, Rejection, to_event
from angzarr.sagas.rejection_answers import (
    Compensation,
    CompensationStep,
    Flags,
    Forward,
    Result,
    answer_of,
    revoke_command,
)
from angzarr.sagas.saga import ProcessManager, command_of
from angzarr.wire.rejection_pb2 import Notification


def said_of(asked: Aggregate[Any], context: CompensationContext) -> object:
    """The answer of *asked*: by the method for the command, or by the older form."""
    command = context.command
    name = asked.methods.rejected.get(Rejected(command.domain or "", command.type))
    if name is not None:
        return getattr(asked, name)(context)
    older = getattr(asked, "handle_revocation", None)
    if older is None:
        return None
    if isinstance(asked, ProcessManager):
        return older(revoke_command(context), asked.state)
    return older(revoke_command(context))


def silence(kind: AggregateType, rejection: Rejection) -> str:
    """Why *kind* answered nothing to *rejection*. Pure."""
    event = rejection.command.event
    declared = Rejected(event.domain or "", event.type)
    if declared in kind.methods.rejected or hasattr(kind, "handle_revocation"):
        return "the source answered nothing"
    return f"{kind.__qualname__} has no @rejected({declared.domain!r}, {declared.type!r})"


def check_cause(kind: AggregateType, rejection: Rejection, book: Book) -> None:
    """Refuse a rejection of what no event in *book* led to; raises UnknownCommand.

    A process manager may send before it appends. What was sent on names the event of another.
    """
    if issubclass(kind, ProcessManager):
        return
    origin = rejection.origin
    if not book.next_sequence:
        msg = f"there is no {origin.source}, which {origin.saga} names as its source"
        raise UnknownCommand(msg)
    sent_on = rejection.id != id_after(rejection.command.id, "rejected")
    if origin.sequence >= book.next_sequence and not sent_on:
        msg = (
            f"{origin.source} has no event {origin.sequence}, of which {origin.saga} says it set"
            f" it off: it is at {book.next_sequence}"
        )
        raise UnknownCommand(msg)


_log: Final = logging.getLogger("angzarr.sagas")

_STATUS: Final = {
    Result.REVOKED: RejectionStatus.REVOKED,
    Result.DECLINED: RejectionStatus.DECLINED,
    Result.ABORTED: RejectionStatus.ABORTED,
}


class CompensationMeters(Protocol):
    """Counts compensations; it must not raise, and not take long."""

    def ended(self, saga: str, status: RejectionStatus, seconds: float) -> None:
        """Count a compensation that ended so, *seconds* after the command was rejected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompensationTurn:
    """One delivery of a rejection to its source."""

    #: The cause under which flags are kept: asking anew, also by a replay, has another one.
    id: str
    #: Tells of an error whether nothing would be tried again.
    is_final: Callable[[Exception], bool]
    #: Of what is sent on: whatever else follows is checked where it arrives.
    max_depth: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Compensating:
    """Safe to use from threads."""

    books: EventBooks
    log: RejectionLog
    outbox: Outbox
    meters: CompensationMeters
    clock: Clock
    chance: Callable[[], float]
    #: What is done where the source fails, or says nothing (spec C6).
    fallback: Flags
    #: Where `SagaCompensationFailed` goes.
    domain: str
    policy: Policy = POLICIES["saga_command"]
    #: Returns a text without secrets, for the log.
    shown: Callable[[str], str] = str

    def compensate(
        self, kind: AggregateType, rejection: Rejection, turn: CompensationTurn
    ) -> RejectionStatus:
        """Ask the source of *rejection*, one of *kind*, and make true what it answers.

        Raises CompensationFailed where a dead letter is to be written, and errors that pass.
        """
        if (kept := self._decided(rejection, turn.id)) is not None:
            return self._carry_out(rejection, turn, read_flags(kept))
        try:
            answer = self._understood(rejection, self._ask(kind, rejection), turn)
        except Unavailable:
            raise
        except Exception as error:
            if not turn.is_final(error):
                raise
            why = f"{type(error).__name__}: {text_of(error)}"
            return self._fall_back(rejection, turn, why, error)
        match answer:
            case Decision():
                return self._follow(rejection, answer)
            case Rejection():
                self.log.note(case_of(answer, self.clock.now()))
                self.outbox.tell(answer)
                where = Flags(reason=f"sent on to {answer.origin.source}")
                return self._end(rejection, RejectionStatus.FORWARDED, where)
            case Flags():
                said = KeptFlags(answer, _STATUS[answer.result])
                return self._carry_out(rejection, turn, said)
            case _:
                return self._fall_back(rejection, turn, silence(kind, rejection))

    def _understood(
        self,
        rejection: Rejection,
        answer: Decision | Forward | Flags | None,
        turn: CompensationTurn,
    ) -> Decision | Rejection | Flags | None:
        """*answer* with a notification read: one that cannot be is an error."""
        if isinstance(answer, Forward):
            onward = self._forwarded(rejection, answer.notification)
            check_depth(to_event(onward), turn.max_depth)
            return onward
        return answer

    def _ask(self, kind: AggregateType, rejection: Rejection) -> Decision | Forward | Flags | None:
        """The answer of the source, or its earlier one: events are kept in its book."""

        def decide(book: Book) -> Decision | Forward | Flags | None:
            check_cause(kind, rejection, book)
            asked = kind(book)
            answer = answer_of(said_of(asked, CompensationContext.of(rejection)))
            if not isinstance(answer, Compensation):
                return answer
            return _decision(asked, rejection, answer)

        races = Races(self.policy, self.clock, self.chance)
        source = rejection.origin.source
        return decide_once(self.books, kind, source, rejection.id, decide=decide, races=races)

    def _follow(self, rejection: Rejection, decision: Decision) -> RejectionStatus:
        """Send what the source decided; then do what it asks for besides."""
        self.outbox.publish(decision.events)
        notes = decision.notes or {}
        self.outbox.send(read_commands(notes.get("commands")))
        flags = _cut(Flags(**(notes.get("flags") or {})))
        status = self._end(rejection, RejectionStatus.COMPENSATED, flags, decision.events)
        self._act(rejection, flags)
        return status

    def _fall_back(
        self, rejection: Rejection, turn: CompensationTurn, why: str, error: Exception | None = None
    ) -> RejectionStatus:
        """Do what the settings say where the source fails or says nothing."""
        said = KeptFlags(replace(self.fallback, reason=why), RejectionStatus.FAILED)
        return self._carry_out(rejection, turn, said, error)

    def _carry_out(
        self,
        rejection: Rejection,
        turn: CompensationTurn,
        said: KeptFlags,
        error: Exception | None = None,
    ) -> RejectionStatus:
        """Do what the flags say, unless another delivery had the source compensate meanwhile."""
        if (decided := self._decided(rejection, rejection.id)) is not None:
            return self._follow(rejection, decided)
        flags, status = self._kept(rejection, turn, said)
        self._end(rejection, status, flags)
        if status is RejectionStatus.DECLINED or (
            status is RejectionStatus.FAILED and not any(flags.steps())
        ):
            self._say_declined(rejection, flags.reason)
        self._act(rejection, flags, error)
        return status

    def _say_declined(self, rejection: Rejection, reason: str) -> None:
        """Write that what led to the command is not undone: people hear of it only by this."""
        command, origin = rejection.command, rejection.origin
        _log.warning(
            "compensation_declined: %s of %s was rejected by %s (%s); %s undoes nothing: %s",
            command.event.type, origin.saga, command.address,
            self.shown(rejection.reason[:MAX_TEXT]), origin.source,
            self.shown(reason) or "no reason was given",
        )  # fmt: skip

    def _kept(self, rejection: Rejection, turn: CompensationTurn, said: KeptFlags) -> KeptFlags:
        """Keep *said* before anything of it is done; return what was kept of this turn first."""
        decision = written_flags(turn.id, said._replace(flags=_cut(said.flags)))
        written = self.books.write(Write(address=rejection.origin.source, decision=decision))
        return read_flags(decision if isinstance(written, Stale) else written.decision)

    def _decided(self, rejection: Rejection, cause: str) -> Decision | None:
        """The decision of the source on *cause*; None, too, where its book cannot be read."""
        try:
            return self.books.read(rejection.origin.source, cause=cause).decision
        except Unavailable:
            raise
        except Exception:  # noqa: BLE001 - as it was asked: that is what the fallback is for
            return None

    def _act(self, rejection: Rejection, flags: Flags, error: Exception | None = None) -> None:
        """Do what *flags* say, in order: the letter comes first, so all else waits for it.

        An abort is an error to the caller. Here that is a dead letter, too.
        """
        steps = tuple(flags.steps())
        if not {CompensationStep.DEAD_LETTER, CompensationStep.ABORT}.isdisjoint(steps):
            command, origin = rejection.command, rejection.origin
            msg = (
                f"{command.event.type} of {origin.saga} was rejected by {command.address}"
                f" ({rejection.reason}); {flags.reason or 'no reason was given'}"
            )
            then = partial(self._steps, rejection, steps, flags.reason)
            raise CompensationFailed(msg, then) from error
        self._steps(rejection, steps, flags.reason)

    def _steps(self, rejection: Rejection, steps: Sequence[CompensationStep], reason: str) -> None:
        for step in steps:
            if step is CompensationStep.ESCALATE:
                self.outbox.escalate(rejection, reason)
            elif step is CompensationStep.REVOKE:
                failed = failure_event(rejection, reason, self.domain, rejection.rejected_at)
                self.outbox.publish([failed], rejection.sealed)

    def _forwarded(self, rejection: Rejection, notification: Notification) -> Rejection:
        """The rejection that *notification* carries, for whom its cover names."""
        context = CompensationContext.from_notification(notification)
        if context is None:
            msg = "the notification that was answered holds a command without an origin"
            raise DecodeError(msg)
        to = address_of(notification.cover)
        check_address(to)
        named = context.saga_origin
        origin = replace(named, source=to, saga=named.saga or rejection.origin.saga)
        return Rejection(
            id=id_after(rejection.id, "forwarded", *to),
            command=deeper(context.rejected_command, rejection.command.event, origin),
            origin=origin,
            reason=context.rejection_reason,
            rejected_at=rejection.rejected_at,
            sealed=rejection.sealed,
        )

    def _end(
        self,
        rejection: Rejection,
        status: RejectionStatus,
        flags: Flags,
        events: Sequence[Event] = (),
    ) -> RejectionStatus:
        now = self.clock.now()
        case = replace(
            case_of(rejection, now),
            status=status,
            answer=flags.reason,
            steps=tuple(flags.steps()),
            first_event=events[0].sequence if events else None,
            event_count=len(events),
        )
        self.log.note(case)
        took = (now - rejection.rejected_at).total_seconds()
        self.meters.ended(rejection.origin.saga, status, max(took, 0.0))
        return status


def _cut(flags: Flags) -> Flags:
    """*flags* with a reason that can be kept: ids of what follows are made from it."""
    return replace(flags, reason=flags.reason[:MAX_TEXT])


def _decision(asked: Aggregate[Any], rejection: Rejection, answer: Compensation) -> Decision:
    """The decision that *answer* makes. Of its commands only a process manager hears again."""
    cause, origin = to_event(rejection), rejection.origin
    heard = origin if isinstance(asked, ProcessManager) else None
    commands = [
        command_of(send, cause, heard, origin.saga, index)
        for index, send in enumerate(answer.sends)
    ]
    notes = {
        "commands": written_commands(commands),
        "flags": None if answer.flags is None else asdict(answer.flags),
    }
    return Decision(
        cause=rejection.id, events=tuple(asked.events_of(list(answer.events), cause)), notes=notes
    )
