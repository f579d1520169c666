"""Flags: what an aggregate asks of the framework instead of compensating itself (spec C5). Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar


class CompensationStep(StrEnum):
    """What a flag leads to, in the order in which it is done."""

    DEAD_LETTER = "dead_letter"
    ESCALATE = "escalate"
    ABORT = "abort"
    REVOKE = "revoke"


class Result(StrEnum):
    """How the compensation of a rejected command ended."""

    #: The aggregate appended events.
    COMPENSATED = "compensated"
    #: `SagaCompensationFailed` was emitted.
    REVOKED = "revoked"
    #: Nobody undoes anything.
    DECLINED = "declined"
    #: The chain was stopped.
    ABORTED = "aborted"
    #: The aggregate answered with a notification, which was sent on.
    FORWARDED = "forwarded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """The wire calls it a RevocationResponse."""

    __no_event__: ClassVar[str] = "the answer to a rejection"

    emit_system_revocation: bool = False
    send_to_dead_letter_queue: bool = False
    escalate: bool = False
    abort: bool = False
    reason: str = ""

    def steps(self) -> Iterator[CompensationStep]:
        """Yield what is done, in order: an abort ends it."""
        if self.send_to_dead_letter_queue:
            yield CompensationStep.DEAD_LETTER
        if self.escalate:
            yield CompensationStep.ESCALATE
        if self.abort:
            yield CompensationStep.ABORT
            return
        if self.emit_system_revocation:
            yield CompensationStep.REVOKE

    @property
    def result(self) -> Result:
        """How it ends: without an abort and a system revocation, whatever else is set, declined."""
        if self.abort:
            return Result.ABORTED
        return Result.REVOKED if self.emit_system_revocation else Result.DECLINED
