"""UnreadableMessages: the dead letters of messages that cannot be read (spec D7).

There is no delivery then: no event, often no task. What is left are the bytes, what headers there
are, and the queue.

A message that kills its reader has to be known before it is read (`Reading`). The count is kept
outside of the reading process: our Redis transport writes it before the message itself, others in
the claim store. A broker's own counter does not do: giving a message back on purpose raises it too.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from angzarr.clock import Clock
from angzarr.dead_letters.letter import (
    DeadLetter,
    Reason,
    cut_message,
    letter_id,
    unreadable_letter_id,
)
from angzarr.dead_letters.queue import DeadLetterQueue, put_one
from angzarr.delivery.delivery import Delivery, position_of
from angzarr.delivery.delivery_facts import details_of, fenced_fact
from angzarr.delivery.handlers import Handlers
from angzarr.delivery.letter_builder import DeadLetterBuilder, component_type_of
from angzarr.errors import text_of
from angzarr.events import headers as names
from angzarr.events.event import Message
from angzarr.facts.fact import Fact, FactLog
from angzarr.facts.resolution import letter_fact_id


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableMessages:
    """Knows the worker it happens in."""

    letter_builder: DeadLetterBuilder
    handlers: Handlers
    dead_letters: DeadLetterQueue
    facts: FactLog
    clock: Clock

    def take(self, message: Message, error: Exception, code: str) -> DeadLetter:
        """The dead letter that *message* is then, and that a fact; raises whatever is away.

        *code* says in one word what is wrong with it. The letter's id follows from queue and
        body, so that doing it twice is harmless.
        """
        letter = self._letter(message, error, code)
        self.keep(letter)
        return letter

    def keep(self, letter: DeadLetter) -> None:
        """Put *letter* in its queue and note that as a fact; raises if a service is away."""
        put_one(self.dead_letters, letter)
        self.facts.append([_fact(letter)])

    def note_fenced(self, delivery: Delivery) -> None:
        """Append the fact that *delivery* was taken over before its claim was completed."""
        self.facts.append([fenced_fact(delivery, self.clock.now())])

    def close(self) -> None:
        """Close the connections."""
        self.dead_letters.close()
        self.facts.close()

    def _letter(self, message: Message, error: Exception, code: str) -> DeadLetter:
        now = self.clock.now()
        domain = self._domain(message)
        letter = DeadLetter(
            id=_id(domain, message),
            domain=domain,
            handler=message.task,
            reason=Reason.UNDELIVERABLE,
            explanation=f"could not be delivered: {text_of(error)}"[:500],
            message=message,
            error_type=type(error).__name__,
            error_code=code,
            error_message=cut_message(text_of(error)),
            first_attempt_at=now,
            last_attempt_at=now,
            sent_to_dlq_at=now,
            worker=self.letter_builder.worker,
            version=self.letter_builder.version,
            component=self.letter_builder.component,
            component_type=self._component_type(message),
        )
        return self.letter_builder.finished(letter)

    def _component_type(self, message: Message) -> str:
        """The type of its handler: one with an order has a lane that waits for it."""
        event = names.from_headers(message.headers, data=None, event_id="", type=message.task)
        return component_type_of(self.handlers.get(message.task), event, Reason.UNDELIVERABLE)

    def _domain(self, message: Message) -> str:
        """The domain whose letter it is."""
        of_event = message.headers.get(names.DOMAIN)
        return self.letter_builder.domains.of_letter(
            self.handlers.get(message.task),
            of_event if isinstance(of_event, str) else None,
            message.queue,
        )


def damaged(raw: bytes, queue: str) -> Message:
    """A message of which nothing but *raw* is left, its envelope included."""
    return Message(
        body=raw,
        content_type="application/octet-stream",
        content_encoding="binary",
        headers={},
        queue=queue,
    )


def _id(domain: str, message: Message) -> str:
    """An id of queue and body; with a task's id it is the letter of that task alone.

    The body counts in any case: it must not replace the letter of an event that bears its id.
    """
    raw = unreadable_letter_id(message.queue, message.body)
    if not (message.task and message.id):
        return raw
    replay = position_of(message.headers).replay
    return letter_id(domain, message.task, f"{message.id}#{raw}", replay)


def _fact(letter: DeadLetter) -> Fact:
    return Fact(
        id=letter_fact_id(letter.id),
        type="error",
        subtype=letter.reason.value,
        at=letter.sent_to_dlq_at,
        tool_id=letter.handler or None,
        event_id=letter.event.id if letter.event else None,
        data={"outcome": "dead_lettered", **details_of(letter)},
    )


#: Deaths after which it is not read any more.
MOST_DEATHS: Final = 3


class ReadMode(Enum):
    """How a message is read."""

    WITH_OTHERS = auto()
    #: Before any other one is, while it is written down that this is done.
    ALONE = auto()
    NEVER = auto()


class ReadersDied(ValueError):
    """Why a message is not read: workers died of it, as it seems.

    *deaths* workers died that had it in hand, *reading* of them, at least, while they read it.
    """

    code = "READERS_DIED"

    def __init__(self, deaths: int, reading: int) -> None:
        super().__init__(
            f"{deaths} workers died, at least {reading} of them while they read this message:"
            " it is kept as it came, and read by none"
        )


def reading_after(deaths: int, *, redelivered: bool = False) -> ReadMode:
    """How a message is read of which *deaths* are known.

    One that was *redelivered* may have killed a worker that had noted nothing of it.
    """
    if deaths >= MOST_DEATHS:
        return ReadMode.NEVER
    return ReadMode.ALONE if deaths or redelivered else ReadMode.WITH_OTHERS
