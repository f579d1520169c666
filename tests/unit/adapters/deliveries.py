"""Deliveries and outcomes for the tests of hooks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from angzarr.dead_letters.letter import DeadLetter, Reason
from angzarr.delivery.delivery import (
    DeadLettered,
    Delivery,
    Duplicate,
    Handled,
    Postponed,
    Refused,
    Retried,
    Skipped,
    Superseded,
    read,
)
from angzarr.events.event import Message
from angzarr.resilience.taxonomy import Category, Classification

AT = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
TRACE = "0af7651916cd43dd8448eb211c80319c"
SENDER = "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{SENDER}-01"
SEEN = Classification(category=Category.EXTERNAL, code="HTTP_503")


def a_delivery(token: str = "t-1", **headers: Any) -> Delivery:
    given = {
        "task": "shop.sync",
        "id": "m-1",
        "angzarr-event-id": "e-1",
        "angzarr-event-type": "order.placed",
        "angzarr-domain": "order",
        "angzarr-correlation-id": "c-1",
        "traceparent": TRACEPARENT,
    } | headers
    message = Message(
        body=b"[]",
        content_type="application/json",
        content_encoding="utf-8",
        headers={name.replace("_", "-"): value for name, value in given.items() if value},
        queue="orders",
    )
    return read(message, args=[{}], kwargs={}, token=token, owner="o")


def a_letter(reason: Reason = Reason.EXHAUSTED, attempts: int = 3) -> DeadLetter:
    return DeadLetter(
        id="l-1",
        domain="order",
        handler="shop.sync",
        reason=reason,
        explanation="3 attempts used",
        message=a_delivery().message,
        error_code="HTTP_503",
        error_message="crm is down",
        category="external",
        attempts=attempts,
        sent_to_dlq_at=AT,
    )


def raised(text: str = "crm is down") -> Exception:
    """Return an error with a traceback, as a handler raises it."""
    try:
        raise ConnectionError(text)
    except ConnectionError as error:
        return error


def retried() -> Retried:
    delay = timedelta(seconds=1.5)
    return Retried(delay=delay, error=raised(), seen=SEEN, max_attempts=5)


def dead_lettered(reason: Reason = Reason.EXHAUSTED, attempts: int = 3) -> DeadLettered:
    return DeadLettered(letter=a_letter(reason, attempts), error=raised(), claimed=True)


def breaker_open() -> Postponed:
    return Postponed(
        delay=timedelta(seconds=30), why="breaker crm is open", claimed=True, breaker="crm"
    )


def all_outcomes() -> list[Any]:
    return [
        Handled(),
        Duplicate(),
        Refused(error=raised()),
        Superseded(),
        Skipped(reason="negative total"),
        Postponed(delay=timedelta(seconds=2), why="in progress", claimed=False),
        breaker_open(),
        retried(),
        dead_lettered(),
    ]
