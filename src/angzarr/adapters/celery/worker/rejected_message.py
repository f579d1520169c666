"""What RabbitMQ gave up, as it lies in its queue: the message, and what it says of the reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from angzarr.adapters.celery.envelope import Envelope
from angzarr.errors import DeliveryError
from angzarr.events import headers as names
from angzarr.events.message import Message

#: kombu's queues for delayed messages, which go from one to the next by being dead-lettered.
_DELAYS: Final = "celery_delayed_"

_WORDS: Final = {
    "delivery_limit": "had given it back to workers too often",
    "rejected": "was told to drop it by who consumed it",
    "expired": "let it wait longer than its time to live",
    "maxlen": "had no room for it",
}


def message_of(message: Any) -> Message:
    """Return *message* raw, with the name of the queue that RabbitMQ says it was dropped from.

    A header tells it of what is there for another reason.
    """
    headers = message.headers or {}
    envelope = Envelope(
        "", "", message.body, message.content_type or "", message.content_encoding or "",
        headers, message.properties or {}, {},
    )  # fmt: skip
    return envelope.message(str(_death(headers).get("queue") or "") or envelope.named_queue or "")


def what_happened(headers: Any) -> tuple[DeliveryError, str]:
    """Return why RabbitMQ gave a message up, and a word for it, as its ``x-death`` tells."""
    death = _death(headers)
    reason, queue = str(death.get("reason") or "unknown"), death.get("queue")
    said = _WORDS.get(reason, f"dropped it ({reason})")
    error = DeliveryError(f"RabbitMQ {said}: queue {queue!r}, x-death reason {reason!r}")
    return error, f"RABBITMQ_{reason.upper()}"


def to_come_back(message: Message, dropped: str) -> Message:
    """Return *message* as it is published to the queue *dropped* again, to be read as before."""
    named: Mapping[str, Any] = {names.QUEUE: message.queue} if message.queue else {}
    return replace(message, queue=dropped, headers={**message.headers, **named})


def _death(headers: Any) -> dict[str, Any]:
    """Return the latest entry of ``x-death`` that is no end of a delay."""
    told = headers.get("x-death") if isinstance(headers, dict) else None
    for death in told if isinstance(told, list) else ():
        if isinstance(death, dict) and not str(death.get("queue")).startswith(_DELAYS):
            return death
    return {}
