"""Delivery: one message in the hands of one worker, read but without an outcome.

Outcome: what becomes of it (spec D6), a closed union; settle makes it true.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, TypeAlias, cast

from angzarr.dead_letters.letter import DeadLetter
from angzarr.errors import DecodeError, text_of
from angzarr.events import headers as names
from angzarr.events.event import Event, Message, digest
from angzarr.events.headers import number_or
from angzarr.ordering.lane import Moved, StepEnd
from angzarr.ordering.lanes import Turn
from angzarr.payloads.claim_check import HEADER as PAYLOAD
from angzarr.payloads.claim_check import check_in, fingerprint_in
from angzarr.payloads.holders import PayloadHold
from angzarr.resilience.idempotency import (
    FIRST,
    Claim,
    ClaimAnswer,
    Claimed,
    Position,
    key_for,
)
from angzarr.resilience.taxonomy import Classification
from angzarr.runtime.fast_init import fast_init


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A message as a worker knows it before it runs. `token` names this very delivery."""

    message: Message
    event: Event
    handler: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    token: str
    owner: str
    attempt: int
    position: Position
    first_attempt_at: datetime | None
    #: How long it is to be slept still before it is run; see `names.REST`.
    rest_ms: int
    letter_id: str | None
    #: Its publisher's deadline (Celery's ``expires``): no run begins later. None: there is none.
    expires_at: datetime | None = None
    #: Since when it has been held back, without being let in once; see `Postponed.held`.
    held_since: datetime | None = None
    redelivered: bool = False
    #: What its claim was answered, where that was made when the message was fetched.
    answer: ClaimAnswer | None = None
    #: Whether a success is acknowledged at once, in one step that can end its claim.
    ack_follows: bool = False
    #: The body that was fetched for a message that has none, if its letter is to have it.
    loaded: bytes = b""
    #: What its handler works on, once it says so: facts that are made afterwards have it.
    asset_id: str | None = None
    #: The idempotency key of this (handler, event) pair.
    key: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", key_for(self.handler, self.event.id))

    @property
    def claimed_with_fetch(self) -> bool:
        """True if it was claimed when its message was fetched, without counting a start."""
        return isinstance(self.answer, Claimed)

    @property
    def turn(self) -> str:
        """The key of its place in the line: the same until it has used an attempt."""
        return f"{self.key}#{self.attempt}"

    def held_for(self, now: datetime) -> timedelta:
        """How long it has been held back."""
        return now - self.held_since if self.held_since is not None else timedelta(0)

    def pin(self, pins: Mapping[str, str]) -> None:
        """Pin its event to *pins* as well; what it is pinned to already stays.

        This and its asset are all that changes while it runs: whatever is made of the event
        afterwards carries the pins, as if its publisher had said so.
        """
        own = cast("dict[str, str]", self.event.config_pins)  # which `read` made for it alone
        for name, version in pins.items():
            own.setdefault(name, version)

    def set_asset(self, asset: str | None) -> None:
        """Say what its handler works on; None: nothing of its own."""
        object.__setattr__(self, "asset_id", asset)

    @property
    def pinned_message(self) -> Message:
        """Its message, with a header for all that its event is pinned to."""
        pins, message = self.event.config_pins, self.message
        if not pins or names.pins_of(message.headers) == pins:
            return message
        return replace(message, headers={**message.headers, **names.pin_headers(pins)})

    @property
    def fingerprint(self) -> str:
        """See `fingerprint_of`."""
        return fingerprint_of(self.position, self.args, self.kwargs, self.message.headers)

    @property
    def is_elsewhere(self) -> bool:
        """True if its message says where its body is, and has none itself."""
        return PAYLOAD in self.message.headers

    @property
    def hold(self) -> PayloadHold | None:
        """Its hold on its body; None: it has one itself, or of another release or kind."""
        if not self.is_elsewhere:
            return None
        try:
            check = check_in(self.message.headers)
        except DecodeError:
            return None
        return None if check is None else check.hold(self.key, self.position.replay)

    @property
    def claim(self) -> Claim:
        """The claim that this delivery asks for."""
        return Claim(
            key=self.key,
            token=self.token,
            owner=self.owner,
            position=self.position,
            fingerprint=self.fingerprint,
        )


def read(
    message: Message,
    *,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    token: str,
    owner: str,
    redelivered: bool = False,
    answer: ClaimAnswer | None = None,
    ack_follows: bool = False,
) -> Delivery:
    """Read a delivery from a Celery message; malformed optional headers count as absent."""
    get, task = message.headers.get, message.task
    return Delivery(
        message=message,
        event=names.from_headers(
            message.headers,
            data=None if PAYLOAD in message.headers else data_of(args, kwargs),
            event_id=message.id,
            type=task,
        ),
        handler=task,
        args=args,
        kwargs=kwargs,
        token=token,
        owner=owner,
        attempt=attempt_of(message.headers),
        position=position_of(message.headers),
        first_attempt_at=names.time_of(get(names.FIRST_ATTEMPT_AT)),
        rest_ms=number_or(get(names.REST), 0),
        letter_id=str(letter_id) if (letter_id := get(names.LETTER_ID)) else None,
        expires_at=names.time_of(get("expires")),
        held_since=names.time_of(get(names.HELD_SINCE)),
        redelivered=redelivered,
        answer=answer,
        ack_follows=ack_follows,
    )


def attempt_of(found: Mapping[str, Any]) -> int:
    """The attempt that a message's headers tell, from 1."""
    return number_or(found.get(names.ATTEMPT), 0) or number_or(found.get("retries"), 0) + 1


def position_of(found: Mapping[str, Any]) -> Position:
    """The position that a message's headers tell."""
    if names.REPLAY not in found and names.HOP not in found:  # nearly all
        return FIRST
    return Position(
        number_or(found.get(names.REPLAY), 0),
        number_or(found.get(names.HOP), 0),
    )


def fingerprint_of(
    position: Position, args: Sequence[Any], kwargs: Mapping[str, Any], said: Mapping[str, Any]
) -> str:
    """The digest of the body; empty for a copy, which is our own word for word.

    Of a body that lies elsewhere the headers *said* tell it. A user's own `self.retry(args=…)`
    changes a copy's body on purpose, so only what a publisher or a person sent (hop 0) is compared.
    """
    if position.hop:
        return ""
    told = fingerprint_in(said) if PAYLOAD in said else None
    return told or digest([args, kwargs])


def data_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """An event's data (its only argument), or all arguments of a plain task."""
    if len(args) == 1 and not kwargs:
        return args[0]
    return {"args": list(args), "kwargs": dict(kwargs)}


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Handled:
    """The handler finished. `result` is the value's JSON text, kept for duplicates."""

    value: Any = None
    result: str | None = None
    #: What the handler raised to say that it finished (Celery's Ignore), passed on as it is.
    raised: BaseException | None = None
    #: Whether a log of finished steps may be there, which ends with the claim.
    clears: bool = False
    #: How its run moved its lane; None: it has none, or settle moves it.
    moved: Moved | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicate:
    """The event was handled before; `value` is the result of that run, if it was `kept`.

    `claimed` tells whether this delivery holds the event: then its lane knew.
    """

    value: Any = None
    kept: bool = True
    claimed: bool = False
    #: Whether that run ended as `Skipped`: then nothing follows it.
    skipped: bool = False
    #: How that run ended, if it was killed before it could tell: then this delivery tells it.
    untold: StepEnd | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The event failed for good before and its letter is written; `error` says how."""

    error: Exception


@dataclass(frozen=True, slots=True, kw_only=True)
class Superseded:
    """A later copy of this event exists; this one ends here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A business refusal: said by the handler, or `seen` and skipped by a rule (spec D2).

    Or a person dropped it.
    """

    reason: str
    seen: Classification | None = None
    #: The id of the switch that dropped it, if that is why.
    switch: str | None = None
    #: Whether a log of finished steps may be there, which ends with the claim.
    clears: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Postponed:
    """To be run later, no attempt used; `claimed` tells whether this delivery holds the event."""

    delay: timedelta
    why: str
    claimed: bool
    #: Whether its handler's `max_age` bounds how long it is put off for such reasons in a row.
    held: bool = False
    #: The open breaker it waits for, if that is why.
    breaker: str | None = None
    #: The domain that is held back for a poison wave, if that is why.
    wave: str | None = None
    #: Whether it waits for a read model that is being replaced.
    shut: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Parked:
    """It came before its turn and waits in its lane, which is at `next_sequence`; no attempt used.

    The delivery that moves the lane to it publishes it again (spec P3).
    """

    turn: Turn
    next_sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Retried:
    """To be run again after `delay`, one attempt used."""

    delay: timedelta
    error: Exception
    seen: Classification
    max_attempts: int
    #: The body of the copy where the handler asked for other arguments; None: as received.
    body: bytes | None = None
    #: The message of that copy, once `EditedCopies` has made it: as it is sent.
    edited: Message | None = None
    #: Whether the handler gave it back to its queue: code that looks for `redelivered` finds it.
    requeued: bool = False
    #: The error's text where that must not show all of it; None: it may.
    shown: str | None = None

    @property
    def text(self) -> str:
        """The text of the error in facts, spans and log lines."""
        return text_of(self.error) if self.shown is None else self.shown


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLettered:
    """Not to be run again until a person has found the cause."""

    letter: DeadLetter
    error: Exception
    claimed: bool


Outcome: TypeAlias = (
    Handled
    | Duplicate
    | Refused
    | Superseded
    | Skipped
    | Postponed
    | Parked
    | Retried
    | DeadLettered
)

#: The word for each outcome in facts, logs and metrics.
WORDS: dict[type[Outcome], str] = {
    Handled: "handled",
    Duplicate: "duplicate",
    Refused: "duplicate",
    Superseded: "duplicate",
    Skipped: "skipped",
    Postponed: "postponed",
    Parked: "parked",
    Retried: "retried",
    DeadLettered: "dead_lettered",
}


def ended_early(outcome: Outcome | None) -> bool:
    """True if the steps that follow *outcome* never will, although it is not a failure."""
    return isinstance(outcome, Skipped) or (isinstance(outcome, Duplicate) and outcome.skipped)
