"""Letter rates: how fast dead letters are put and taken, by our queue and by a bare client."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

from bare.side import Backend, Document

from angzarr.dead_letters.codec import encode
from angzarr.dead_letters.letter import DeadLetter, Reason
from angzarr.dead_letters.names import queue_name
from angzarr.events.event import Event, Message
from harness.figure import NotMeasured

#: A stack as a handler a few calls deep leaves one.
STACK = "Traceback (most recent call last):\n" + "".join(
    f'  File "/app/shop/module_{depth}.py", line {depth * 7}, in step_{depth}\n    call()\n'
    for depth in range(12)
)
#: The group of them all, which a worker names in its letters.
FINGERPRINT = "9f2d6c1b0a3e4857"
#: How long a run may go without a letter (seconds).
PATIENCE = 30.0
_MOMENT = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)


def letter(domain: str, number: int) -> DeadLetter:
    """Return a letter as a worker writes one whose handler failed five times."""
    data = {"number": number, "order_id": f"o-{number}", "total": "9.90", "currency": "EUR"}
    headers = {
        "lang": "py", "task": "shop.sync", "id": str(uuid.UUID(int=number)), "retries": 4,
        "eta": None, "expires": None, "group": None, "root_id": str(uuid.UUID(int=number)),
        "parent_id": None, "timelimit": [None, None], "origin": "gen1@host", "ignore_result": False,
        "angzarr-event-id": f"e-{number}", "angzarr-type": "OrderPlaced", "angzarr-attempt": 5,
    }  # fmt: skip
    return DeadLetter(
        id=f"{domain}-{number}",
        domain=domain,
        handler="shop.sync",
        reason=Reason.EXHAUSTED,
        explanation="5 attempts used: ConnectionError: the CRM did not answer",
        message=Message(
            body=json.dumps([[data], {}, {"callbacks": None, "chain": None}]).encode(),
            content_type="application/json",
            content_encoding="utf-8",
            headers=headers,
            queue="orders",
        ),
        event=Event(id=f"e-{number}", type="OrderPlaced", data=data, root=f"o-{number}"),
        error_type="ConnectionError",
        error_message="the CRM did not answer",
        error_stack=STACK,
        fingerprint=FINGERPRINT,
        category="transient",
        attempts=5,
        first_attempt_at=_MOMENT,
        last_attempt_at=_MOMENT,
        sent_to_dlq_at=_MOMENT,
        worker="host-1",
        version="1.4.2",
    )


def put_by_ours(backend: Backend, at_once: int) -> float:
    """Return letters per second that our queue confirms, *at_once* in flight."""
    domain = _domain()
    letters = [letter(domain, number) for number in range(backend.to_put[at_once])]
    with closing(backend.ours()) as queue:

        def put(some: Sequence[DeadLetter]) -> None:
            if any(refusals := queue.put(some)):
                msg = f"a letter was refused: {next(filter(None, refusals))}"
                raise NotMeasured(msg)

        put([letter(domain, len(letters))])  # connects and creates the queue
        return _rate(letters, at_once, put)


def put_by_theirs(backend: Backend, at_once: int) -> float:
    """Return the same of the bare client, which writes as much JSON."""
    domain = _domain()
    _create(backend, domain)
    documents = [document(letter(domain, number)) for number in range(backend.to_put[at_once])]
    with closing(backend.theirs()) as client:
        client.put(queue_name(domain), documents[:1])
        return _rate(documents, at_once, lambda some: client.put(queue_name(domain), some))


def taken_by_ours(backend: Backend, at_once: int) -> float:
    """Return letters per second that our queue gives and lets go, *at_once* in hand."""
    domain = fill(backend, backend.to_take[at_once] + 1)
    with closing(backend.ours()) as queue:

        def take(limit: int) -> int:
            receipts = queue.receive([domain], limit=limit, wait=timedelta(seconds=5))
            if any(receipt.letter is None for receipt in receipts):
                msg = "a letter could not be read"
                raise NotMeasured(msg)
            queue.done(receipts)
            return len(receipts)

        return _drained(take, backend.to_take[at_once], at_once)


def taken_by_theirs(backend: Backend, at_once: int) -> float:
    """Return the same of the bare client, which reads the same JSON."""
    domain = fill(backend, backend.to_take[at_once] + 1)
    with closing(backend.theirs()) as client:
        return _drained(
            lambda limit: client.take(queue_name(domain), limit), backend.to_take[at_once], at_once
        )


def document(one: DeadLetter) -> Document:
    """Return *one* as the dict that its JSON holds."""
    read: Document = json.loads(encode(one).body)
    return read


def _domain() -> str:
    return f"bench-{uuid.uuid4().hex[:10]}"


def _create(backend: Backend, domain: str) -> None:
    """Make the queue, empty, by our own hand: both sides use the same topology."""
    with closing(backend.ours()) as queue:
        queue.receive([domain], limit=1, wait=timedelta(0))


def fill(backend: Backend, count: int, make: Callable[[str, int], DeadLetter] = letter) -> str:
    """Put *count* letters into a fresh queue and return its domain."""
    domain = _domain()
    with closing(backend.ours()) as queue:
        for at in range(0, count, 500):
            some = [make(domain, number) for number in range(at, min(at + 500, count))]
            if any(queue.put(some)):
                msg = "a letter was refused"
                raise NotMeasured(msg)
    return domain


def _rate(items: Sequence[Any], at_once: int, put: Callable[[Sequence[Any]], None]) -> float:
    began = time.perf_counter()
    for at in range(0, len(items), at_once):
        put(items[at : at + at_once])
    return len(items) / (time.perf_counter() - began)


def _drained(take: Callable[[int], int], count: int, at_once: int) -> float:
    """Return the rate of *count* letters after the first, which connects and joins a group."""
    deadline = time.monotonic() + PATIENCE
    while not take(1):
        _look_at(deadline)
    began, taken = time.perf_counter(), 0
    while taken < count:
        if got := take(min(at_once, count - taken)):
            taken, deadline = taken + got, time.monotonic() + PATIENCE
        else:
            _look_at(deadline)
    return count / (time.perf_counter() - began)


def _look_at(deadline: float) -> None:
    if time.monotonic() > deadline:
        msg = f"no letter came for {PATIENCE:g} s"
        raise NotMeasured(msg)
