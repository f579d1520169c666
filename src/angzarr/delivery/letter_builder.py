"""DeadLetterBuilder: the dead letter of a delivery: what failed, how, and what a replay needs.

Last words say what ended a run that killed its process. They are kept in the claim's record until
the event is claimed again, for its poison letter.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from angzarr.clock import Clock
from angzarr.dead_letters.fingerprint import fingerprint
from angzarr.dead_letters.letter import (
    HANDLER,
    MAX_MESSAGE,
    MAX_STACK,
    ORDERED_HANDLER,
    DeadLetter,
    Mismatch,
    Reason,
    letter_id,
)
from angzarr.delivery.delivery import Delivery
from angzarr.delivery.handlers import Domains, Handler
from angzarr.errors import DecodeError, SequenceMismatch, text_of
from angzarr.events.event import Event, Message
from angzarr.ordering.lane import lane_of
from angzarr.payloads.body_sealer import SEALED
from angzarr.payloads.claim_check import check_in, without_check
from angzarr.payloads.store import PayloadReference
from angzarr.resilience.taxonomy import Classification

#: Of letters whose handler ran for the attempt that they tell of.
_AFTER_A_RUN: Final = frozenset(
    {
        Reason.REFUSED,
        Reason.EXHAUSTED,
        Reason.OUT_OF_TIME,
        Reason.SEQUENCE_MISMATCH,
        Reason.COMPENSATION,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterBuilder:
    """Knows the worker it happens in; everything else it reads from the delivery."""

    clock: Clock
    component: str
    worker: str
    version: str
    domains: Domains = field(default_factory=Domains)
    #: Takes out of a letter's texts, which facts and log lines repeat, what they must not show.
    hide: Callable[[DeadLetter], DeadLetter] | None = None

    def letter(
        self,
        delivery: Delivery,
        handler: Handler | None,
        error: BaseException,
        reason: Reason,
        seen: Classification,
    ) -> DeadLetter:
        """The letter of *delivery*, with *error*'s stack cut at `MAX_STACK` characters."""
        domain = self.domains.of_letter(handler, delivery.event.domain, delivery.message.queue)
        now = self.clock.now()
        ran = reason in _AFTER_A_RUN
        content = _content(delivery)
        letter = DeadLetter(
            id=_id(domain, delivery, reason),
            domain=domain,
            handler=delivery.handler,
            reason=reason,
            explanation=_explain(reason, delivery, error),
            message=content.message,
            event=content.event,
            payload=content.payload,
            error_type=_name(error),
            error_code=seen.code or "UNKNOWN",
            error_message=text_of(error)[:MAX_MESSAGE],
            error_stack=_stack(error),
            category=seen.category.value,
            attempts=delivery.attempt if ran else delivery.attempt - 1,
            replay=delivery.position.replay,
            first_attempt_at=delivery.first_attempt_at or now,
            last_attempt_at=now,
            sent_to_dlq_at=now,
            worker=self.worker,
            version=self.version,
            component=self.component,
            component_type=component_type_of(handler, delivery.event, reason),
            mismatch=_mismatch(error),
        )
        if content.is_sealed and self.hide is not None:
            letter = _texts_from(self.hide(_opened(letter, delivery)), letter)
        return self.finished(letter)

    def finished(self, letter: DeadLetter) -> DeadLetter:
        """*letter* without what it must not show, and with the name of its group.

        In this order: a group named after a secret would tell it, and split by it.
        """
        shown = letter if self.hide is None else self.hide(letter)
        group = fingerprint(
            handler=shown.handler,
            error_type=shown.error_type,
            message=shown.error_message,
            stack=shown.error_stack,
        )
        return replace(shown, fingerprint=group)

    def shown(self, delivery: Delivery, error: BaseException, seen: Classification) -> str | None:
        """*error*'s text without what a letter would hide; None where nothing is hidden."""
        if self.hide is None:
            return None
        return self.letter(delivery, None, error, Reason.REFUSED, seen).error_message


class _Content(NamedTuple):
    """What a letter holds of a delivery."""

    message: Message
    event: Event
    payload: PayloadReference | None = None
    #: Whether the body is sealed: the message goes into the letter as it came.
    is_sealed: bool = False


def _content(delivery: Delivery) -> _Content:
    """The message and its event; of a body that lies elsewhere the place, unless it was kept.

    A claim check that cannot be read stays in the message, where people see it. So does that of a
    sealed body, which no letter shows.
    """
    message, event = delivery.pinned_message, delivery.event
    if not delivery.is_elsewhere:
        return _Content(message, event)
    try:
        check = check_in(message.headers)
    except DecodeError:
        check = None
    if check is not None and check.key:
        shown = replace(event, data=SEALED)
        reference = None if check.is_inline else check.reference
        return _Content(message, shown, reference, is_sealed=True)
    whole = replace(message, body=delivery.loaded, headers=without_check(message.headers))
    if delivery.loaded:
        return _Content(whole, event)
    bare = replace(event, data=None)
    return _Content(message, bare) if check is None else _Content(whole, bare, check.reference)


def _opened(letter: DeadLetter, delivery: Delivery) -> DeadLetter:
    """*letter* with what *delivery* was opened to, for who looks for it in the letter's texts.

    That is the body as it came: a handler may have changed what it was given.
    """
    said = [list(delivery.args), dict(delivery.kwargs), None]
    body = delivery.loaded or json.dumps(said, default=str).encode()
    message = replace(letter.message, body=body, content_type="application/json")
    return replace(letter, message=message, event=delivery.event)


def _texts_from(hidden: DeadLetter, letter: DeadLetter) -> DeadLetter:
    """*hidden*, with message and event of *letter*."""
    return replace(hidden, message=letter.message, event=letter.event)


def _id(domain: str, delivery: Delivery, reason: Reason) -> str:
    """The letter's id; a second body under one event id has a letter of its own."""
    event_id = delivery.event.id
    if reason is Reason.CONFLICT:
        event_id = f"{event_id}#{delivery.fingerprint}"
    return letter_id(domain, delivery.handler, event_id, delivery.position.replay)


def component_type_of(handler: Handler | None, event: Event, reason: Reason) -> str:
    """What kind of handler failed: the letter of an ordered one holds up what follows it.

    Not so a letter that has no place in a lane, nor that of a second body under one event id.
    """
    if handler is None:
        return HANDLER
    if handler.order is None or handler.component_type != HANDLER:
        return handler.component_type
    try:
        lane_of(event, handler.name, handler.order)
    except DecodeError:
        return HANDLER
    return HANDLER if reason is Reason.CONFLICT else ORDERED_HANDLER


def _mismatch(error: BaseException) -> Mismatch | None:
    if not isinstance(error, SequenceMismatch):
        return None
    return Mismatch(error.expected, error.actual, error.strategy)


def _name(error: BaseException) -> str:
    kind = type(error)
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )


def _stack(error: BaseException) -> str:
    """The end of the stack: it names the cause."""
    return "".join(traceback.format_exception(error))[-MAX_STACK:]


def _explain(reason: Reason, delivery: Delivery, error: BaseException) -> str:
    what = text_of(error)[:500] or _name(error)
    match reason:
        case Reason.EXHAUSTED:
            return f"failed {delivery.attempt} times, no attempt is left; last: {what}"
        case Reason.OUT_OF_TIME:
            return f"failed {delivery.attempt} times, no time is left for another run; last: {what}"
        case Reason.REFUSED:
            return f"not retryable: {what}"
        case Reason.UNDELIVERABLE:
            return f"could not be delivered: {what}"
        case _:
            return what


#: Characters that are kept of the error's text, and of the end of its stack.
LAST_WORDS_TEXT, LAST_WORDS_STACK = 500, 4000


class LastWords(NamedTuple):
    """How the last run of an event ended."""

    #: Class and text of the error.
    error: str
    stack: str


class EndOfLastRun(Exception):
    """What the letter's stack shows as the cause of its poison: the stack of another process."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def write_last_words(letter: DeadLetter) -> str:
    """The last words of a run that *letter* tells of; it hides already what it must."""
    error = f"{letter.error_type}: {letter.error_message}" if letter.error_message else ""
    shown = (error or letter.error_type)[:LAST_WORDS_TEXT]
    return json.dumps([shown, letter.error_stack[-LAST_WORDS_STACK:]])


def read_last_words(text: str) -> LastWords | None:
    """What `write_last_words` wrote; None if it is something else."""
    try:
        error, stack = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return None
    if not (isinstance(error, str) and isinstance(stack, str)):
        return None
    return LastWords(error, stack)
