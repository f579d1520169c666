"""Copies and when they come back: the message of a retry or a postponement (decisions 9, 15)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Protocol

from angzarr.delivery.delivery import Delivery
from angzarr.events import headers as names
from angzarr.events.message import Message

#: A wait up to this long may be slept in the worker's slot: cheaper than a round trip (15).
SLEPT = timedelta(milliseconds=100)
#: No wait is longer, whatever a handler or a server asks for: beyond it calendars and brokers end.
FURTHEST = timedelta(days=365)

_DROPPED = frozenset({*names.BROKER_COUNTERS, "eta", names.NOT_BEFORE})


class Schedule(Protocol):
    """Where copies wait. A put that returned is durable: it *is* published."""

    @property
    def longest(self) -> timedelta | None:
        """The longest wait that the broker holds safely; None: any."""

    def put(self, copy: Message, at: datetime, /) -> None:
        """Return once *copy* is durable and will be delivered at or soon after *at*.

        Raises BrokerUnavailable otherwise; it may then have been published all the same.
        """


def copy_of(delivery: Delivery, *, attempt: int, hop: int, due_at: datetime) -> Message:
    """Return *delivery*'s message to be published again, raw but for what one try adds (9)."""
    message = delivery.message
    kept = {name: value for name, value in message.headers.items() if name not in _DROPPED}
    kept |= {
        "retries": attempt - 1,
        names.ATTEMPT: attempt,
        names.HOP: hop,
        names.QUEUE: message.queue,
        names.NOT_BEFORE: due_at.isoformat(),
    }
    if delivery.first_attempt_at is not None:
        kept[names.FIRST_ATTEMPT_AT] = delivery.first_attempt_at.isoformat()
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
