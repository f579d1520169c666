"""Delivery: one message in the hands of one worker, read but not yet judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from angzarr.events import headers as names
from angzarr.events.event import Event, digest
from angzarr.events.message import Message
from angzarr.events.numbers import number_or
from angzarr.resilience.idempotency import Claim, ClaimAnswer, Claimed, Position, key_for


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """What a worker knows of a message before it runs. `token` names this very delivery (3)."""

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
    #: What its claim was answered, where that was made when the message was fetched (4).
    answer: ClaimAnswer | None = None
    #: Whether a success is acknowledged at once by whoever can end its claim with it (4).
    ack_follows: bool = False
    #: The idempotency key of this (handler, event) pair.
    key: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", key_for(self.handler, self.event.id))

    @property
    def rides(self) -> bool:
        """Whether it was claimed when its message was fetched, without counting a start."""
        return isinstance(self.answer, Claimed)

    @property
    def turn(self) -> str:
        """What its place among those who wait goes by: the same until it has used an attempt."""
        return f"{self.key}#{self.attempt}"

    def held_for(self, now: datetime) -> timedelta:
        """Return how long it has been held back."""
        return now - self.held_since if self.held_since is not None else timedelta(0)

    @property
    def fingerprint(self) -> str:
        """See `fingerprint_of`."""
        return fingerprint_of(self.position, self.args, self.kwargs)

    @property
    def claim(self) -> Claim:
        """What this delivery asks of the claim store."""
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
            message.headers, data=data_of(args, kwargs), event_id=message.id, type=task
        ),
        handler=task,
        args=args,
        kwargs=kwargs,
        token=token,
        owner=owner,
        attempt=number_or(get(names.ATTEMPT), 0) or number_or(get("retries"), 0) + 1,
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


def position_of(found: Mapping[str, Any]) -> Position:
    """Return the position that a message's headers tell (10)."""
    return Position(
        number_or(found.get(names.REPLAY), 0),
        number_or(found.get(names.HOP), 0),
    )


def fingerprint_of(position: Position, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return the digest of the body; empty for a copy, which is our own word for word (10, 12).

    A user's own `self.retry(args=…)` changes a copy's body on purpose, so only what a
    publisher or a person sent (hop 0) is compared.
    """
    return "" if position.hop else digest([args, kwargs])


def data_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return an event's data (its only argument), or all arguments of a plain task."""
    if len(args) == 1 and not kwargs:
        return args[0]
    return {"args": list(args), "kwargs": dict(kwargs)}
