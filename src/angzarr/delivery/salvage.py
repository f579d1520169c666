"""Salvage: the dead letter of a message whose very envelope cannot be read (spec D7).

There is no delivery then: no task, no event, no headers. What is left are the bytes and the queue.
"""

from __future__ import annotations

from dataclasses import dataclass

from angzarr.clock import Clock
from angzarr.dead_letters.letter import (
    DeadLetter,
    Reason,
    cut_message,
    unreadable_letter_id,
)
from angzarr.dead_letters.queue import UNKNOWN_DOMAIN, DeadLetterQueue
from angzarr.delivery.autopsy import Autopsy
from angzarr.delivery.delivery import Delivery
from angzarr.delivery.record import fenced_fact
from angzarr.errors import DeadLetterQueueUnavailable, text_of
from angzarr.events.message import Message
from angzarr.facts import Fact, FactLog


@dataclass(frozen=True, slots=True, kw_only=True)
class Salvage:
    """Knows the worker it happens in."""

    autopsy: Autopsy
    dead_letters: DeadLetterQueue
    facts: FactLog
    clock: Clock

    def take(self, raw: bytes, queue: str, error: Exception) -> None:
        """Return once *raw* is a dead letter and that a fact; raises whatever is away.

        The letter's id follows from queue and bytes, so that doing it twice is harmless (21).
        """
        letter = self._letter(raw, queue, error)
        (refusal,) = self.dead_letters.put([letter])
        if refusal is not None:
            msg = f"the dead-letter queue of {letter.domain!r} did not take the letter: {refusal}"
            raise DeadLetterQueueUnavailable(msg)
        self.facts.append([_fact(letter)])

    def note_fenced(self, delivery: Delivery) -> None:
        """Append the fact that *delivery* was taken over before its claim was completed (11)."""
        self.facts.append([fenced_fact(delivery, self.clock.now())])

    def close(self) -> None:
        """Close the connections."""
        self.dead_letters.close()
        self.facts.close()

    def _letter(self, raw: bytes, queue: str, error: Exception) -> DeadLetter:
        now = self.clock.now()
        return DeadLetter(
            id=unreadable_letter_id(queue, raw),
            domain=self.autopsy.domain_of_queue(queue) or UNKNOWN_DOMAIN,
            handler="",
            reason=Reason.UNDELIVERABLE,
            explanation=f"could not be delivered: {text_of(error)}"[:500],
            message=Message(
                body=raw,
                content_type="application/octet-stream",
                content_encoding="binary",
                headers={},
                queue=queue,
            ),
            error_type=type(error).__name__,
            error_code="DAMAGED_ENVELOPE",
            error_message=cut_message(text_of(error)),
            first_attempt_at=now,
            last_attempt_at=now,
            sent_to_dlq_at=now,
            worker=self.autopsy.worker,
            version=self.autopsy.version,
            component=self.autopsy.component,
        )


def _fact(letter: DeadLetter) -> Fact:
    return Fact(
        id=f"{letter.id}:dead_lettered",
        type="error",
        subtype=letter.reason.value,
        at=letter.sent_to_dlq_at,
        data={
            "outcome": "dead_lettered",
            "error_code": letter.error_code,
            "error_message": letter.error_message[:1000],
            "error_type": "terminal",
            "queue_name": letter.message.queue,
            "letter_id": letter.id,
            "reason": letter.reason.value,
            "resolved": False,
        },
    )
