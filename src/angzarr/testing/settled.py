"""Settled: how one delivery ended, as a test reads it, and the hook that notes it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from angzarr.delivery.delivery import (
    WORDS,
    DeadLettered,
    Delivery,
    Duplicate,
    Handled,
    Outcome,
    Postponed,
    Refused,
    Retried,
    Skipped,
)
from angzarr.errors import text_of
from angzarr.events.event import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """How one delivery ended; `outcome` is its word in facts and logs.

    `delay` is how long a retry or a postponement waits, `why` says in words what led to it.
    """

    handler: str
    event: Event = field(repr=False)
    outcome: str
    attempt: int
    delay: timedelta | None = None
    why: str = ""
    error: Exception | None = field(default=None, repr=False)
    #: What the handler returned, or returned before where this is a duplicate.
    value: Any = None

    @property
    def event_id(self) -> str:
        """The id of the event."""
        return self.event.id

    def __repr__(self) -> str:
        when = f" in {self.delay.total_seconds():g} s" if self.delay is not None else ""
        why = f": {self.why}" if self.why else ""
        return (
            f"<{self.handler} of {self.event.id!r}, attempt {self.attempt}:"
            f" {self.outcome}{when}{why}>"
        )


def settled_of(delivery: Delivery, outcome: Outcome) -> Settled:
    """Return what a test is told of *delivery*."""
    delay, why, error, value = None, "", None, None  # type: timedelta | None, str, Exception | None, Any
    match outcome:
        case Handled() | Duplicate():
            value = outcome.value
        case Retried():
            delay, error, why = outcome.delay, outcome.error, _told(outcome.error)
        case Postponed():
            delay, why = outcome.delay, outcome.why
        case DeadLettered():
            error, why = outcome.error, f"{outcome.letter.reason}, {_told(outcome.error)}"
        case Skipped():
            why = outcome.reason
        case Refused():
            error, why = outcome.error, _told(outcome.error)
    return Settled(
        handler=delivery.handler,
        event=delivery.event,
        outcome=WORDS[type(outcome)],
        attempt=delivery.attempt,
        delay=delay,
        why=why,
        error=error,
        value=value,
    )


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {text_of(error)}"


class Recorder:
    """A hook that notes what runs and what became of everything, in order."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: list[Settled] = []
        #: What a handler has in hand now.
        self.running: Delivery | None = None

    @contextmanager
    def attempt(self, delivery: Delivery, /) -> Iterator[None]:
        """Note that its handler runs."""
        self.running = delivery
        try:
            yield
        finally:
            self.running = None

    def settled(self, delivery: Delivery, outcome: Outcome, /) -> None:
        """Note what became of it."""
        with self._lock:
            self._all.append(settled_of(delivery, outcome))

    def all(self) -> list[Settled]:
        """Return all of it, oldest first."""
        with self._lock:
            return list(self._all)
