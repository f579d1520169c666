"""Schedule: where copies wait for their time; messages of retries and postponements.

`Schedule` takes messages in, `DueMessages` hands out what is due to a mover
(angzarr.delivery.schedule_mover), which publishes it. Due is what the clock of the schedule's store
says: the worker that gets the message runs it, and asks no clock of its own. A row is a waiting
message as text, without loss, under a name that the same copy always has.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, Protocol

from angzarr.dead_letters.text import exact_json_text, from_json_text
from angzarr.delivery.delivery import Delivery, position_of
from angzarr.errors import DecodeError, DeliveryError
from angzarr.events import headers as names
from angzarr.events.event import Message
from angzarr.events.headers import WAITED_FOR, NoNumber, event_id_of, read_number
from angzarr.resilience.idempotency import key_part

#: A wait up to this long may be slept in the worker's slot: cheaper than a round trip.
SLEPT = timedelta(milliseconds=100)
#: No wait is longer, whatever a handler or a server asks for: beyond it calendars and brokers end.
FURTHEST = timedelta(days=365)
#: When a message is tried again that the broker refused.
REFUSED_FOR = timedelta(seconds=30)

_DROPPED = frozenset(
    {*names.BROKER_COUNTERS, "eta", names.REST, names.WAITED_FOR, names.HELD_SINCE}
)


class Schedule(Protocol):
    """Where messages wait. A put that returned is durable: it *is* published."""

    def put(self, copy: Message, at: datetime, /) -> None:
        """Store *copy* durably; it will be delivered at or soon after *at*.

        Put again before it is delivered, the same copy (see `schedule_row.id_of`) waits once, for
        the later put's time. Raises Unavailable otherwise; it may then have been put all the
        same. Raises DeliveryError for what could never be read again.
        """


class Row(NamedTuple):
    """One waiting message as its schedule keeps it; `schedule_row.read` makes a message of it."""

    id: str
    text: str


class TakenRows(NamedTuple):
    """The rows that a mover took, and when there may be more: None if nothing waits."""

    rows: Sequence[Row]
    next_in: timedelta | None


class DueMessages(Protocol):
    """The other end: what is due, lent to one mover at a time under a lease.

    A row put again while it is lent waits anew: it is the next delivery's, and what its old
    mover says of it changes nothing (a postponement without a claim keeps its hop). All may raise
    StoreUnavailable, and all may be repeated.
    """

    def take(self, token: str, limit: int, lease: timedelta, /) -> TakenRows:
        """Lend up to *limit* due rows, the longest overdue first, for *lease* under *token*.

        A token whose lease runs gets the same rows again. What is not let go comes back by itself.
        """

    def done(self, token: str, ids: Sequence[str], /) -> None:
        """Delete those of the rows *ids* that *token* still holds: they are published."""

    def give_back(self, token: str, ids: Sequence[str], pause: timedelta, /) -> None:
        """Let those of the rows *ids* that *token* still holds be due again after *pause*."""


class OpenSchedule(Schedule, DueMessages, Protocol):
    """Both ends, and connections that open when first needed."""

    def close(self) -> None:
        """Close the connections; it can still be used and opens new ones."""


def put_arrived(schedule: Schedule, message: Message, at: datetime, now: datetime) -> None:
    """Let a *message* that arrived wait until *at*, as it is (trap 4).

    Once this returns the message may be acknowledged; raises what `Schedule.put` does.
    """
    schedule.put(message, min(at, now + FURTHEST))


def put_early(schedule: Schedule, message: Message, eta: datetime, now: datetime) -> None:
    """Let a *message* that arrived before its *eta* wait for it; see `put_arrived`.

    It comes again without an ``eta``, for which another machine's clock may say that it is still to
    come. What is to wait longer than `FURTHEST` keeps it, and waits again.
    """
    if eta - now <= FURTHEST:
        message = replace(message, headers=due_headers(message.headers))
    put_arrived(schedule, message, eta, now)


def due_headers(said: Mapping[str, Any], left: timedelta = timedelta(0)) -> dict[str, Any]:
    """The headers *said* of a message whose ``eta`` has come, but for what is *left*."""
    due = {**said, "eta": None, names.WAITED_FOR: said.get("eta")}
    return due | rest_headers(left)


def rest_headers(left: timedelta) -> dict[str, int]:
    """The header that makes a worker sleep what is *left* before it runs; none for nothing."""
    milliseconds = math.ceil(left / timedelta(milliseconds=1))
    return {names.REST: milliseconds} if milliseconds > 0 else {}


def copy_of(delivery: Delivery, *, attempt: int, hop: int, requeued: bool | None = None) -> Message:
    """*delivery*'s message to be published again, raw but for what one try adds.

    That is also what its event was pinned to by a first read.

    *requeued* tells whether its run gave it back to its queue; None: it has not run.
    """
    message = delivery.pinned_message
    kept = {name: value for name, value in message.headers.items() if name not in _DROPPED}
    kept |= {
        "retries": attempt - 1,
        names.ATTEMPT: attempt,
        names.HOP: hop,
        names.QUEUE: message.queue,
    }
    if delivery.first_attempt_at is not None:
        kept[names.FIRST_ATTEMPT_AT] = delivery.first_attempt_at.isoformat()
    if delivery.held_since is not None:
        kept[names.HELD_SINCE] = delivery.held_since.isoformat()
    if requeued:
        kept[names.REQUEUED] = True
    elif requeued is not None:
        kept.pop(names.REQUEUED, None)
    return Message(
        body=message.body,
        content_type=message.content_type,
        content_encoding=message.content_encoding,
        headers=kept,
        queue=message.queue,
        exchange=message.exchange,
        routing_key=message.routing_key,
        priority=message.priority,
        properties=message.properties,
    )


_TEXT: Final = ("content_type", "content_encoding", "queue", "exchange", "routing_key")
#: Parts of an id are cut to this: it is a key in every store.
_PART: Final = 100


def row_of(message: Message) -> Row:
    """The row in which *message* waits; raises DeliveryError if it could not be read."""
    row = {
        "body": _body_text(message.body),
        **{name: getattr(message, name) for name in _TEXT},
        "headers": dict(message.headers),
        "priority": message.priority,
        "properties": dict(message.properties),
    }
    try:
        return Row(id_of(message), exact_json_text(row))
    except (ValueError, RecursionError) as error:
        msg = "its headers are nested too deeply to be kept"
        raise DeliveryError(msg) from error


def read_row(text: str) -> Message:
    """The message that `row_of` was given; raises DecodeError."""
    try:
        found = from_json_text(text)
        body = found["body"]
        return Message(
            body=body.encode() if isinstance(body, str) else bytes(memoryview(body)),
            headers=_object(found["headers"]),
            priority=_priority(found["priority"]),
            properties=_object(found["properties"]),
            **{name: str(found[name]) for name in _TEXT},
        )
    except (ValueError, TypeError, KeyError, RecursionError, ArithmeticError) as error:
        msg = f"a row of the schedule cannot be read: {error!r}"
        raise DecodeError(msg) from error


def id_of(message: Message) -> str:
    """The name that a put of the same copy always has, and no other message.

    Copies at one position of one event are one: only one of them would run. Bodies
    are told apart, so that a second body under one event id still meets its refusal; so are the
    times for which publishers sent one message twice.
    """
    position = position_of(message.headers)
    eta = message.headers.get(WAITED_FOR) or message.headers.get("eta")
    told_apart = (message.queue, str(eta), message.id)
    digest = hashlib.sha256("\0".join(told_apart).encode("utf-8", "surrogatepass"))
    digest.update(b"\0")
    digest.update(message.body)
    parts = (
        key_part(message.task, _PART),
        key_part(event_id_of(message.headers), _PART),
        str(position.replay),
        str(position.hop),
        digest.hexdigest()[:32],
    )
    return ":".join(parts)


def _body_text(body: bytes) -> str | bytes:
    """*body* as people can read it, where that restores it."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        return body


def _priority(value: object) -> int | None:
    number = read_number(value)
    if isinstance(number, NoNumber):
        if number is NoNumber.ABSENT:
            return None
        msg = f"its priority is {number.value}"
        raise ValueError(msg)
    return number


def _object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        msg = f"{type(value).__name__} is not an object"
        raise TypeError(msg)
    return value
