"""How deliveries ended, which messages wait, and which facts were written, as a test reads them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, overload

from angzarr.adapters.memory.facts import MemoryFactLog
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
from angzarr.delivery.schedule import Row, read_row
from angzarr.errors import DecodeError, text_of
from angzarr.events import headers as names
from angzarr.events.event import Event
from angzarr.events.headers import number_or
from angzarr.facts.fact import Fact


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
    """The record of *delivery* for a test."""
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
        """All deliveries that were settled, oldest first."""
        with self._lock:
            return list(self._all)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingMessage:
    """A message that comes back at `due_at`; `why` is how its last delivery ended."""

    handler: str
    event_id: str
    due_at: datetime
    attempt: int = 1
    why: str = ""

    def __str__(self) -> str:
        why = f", after {self.why}" if self.why else ""
        return (
            f"{self.handler} of event {self.event_id!r} waits until {self.due_at.isoformat()}"
            f" for attempt {self.attempt}{why}"
        )


def waiting_of(
    rows: Sequence[tuple[Row, datetime]], settled: Sequence[Settled]
) -> list[WaitingMessage]:
    """The messages in *rows*, the earliest first, with the reason why each waits, if known."""
    why = {(one.handler, one.event_id): one for one in settled if one.delay is not None}
    return [_of(row, at, why) for row, at in rows]


def _of(row: Row, at: datetime, why: dict[tuple[str, str], Settled]) -> WaitingMessage:
    try:
        message = read_row(row.text)
    except DecodeError:
        return WaitingMessage(handler="?", event_id="?", due_at=at)
    told: Any = message.headers
    event_id = names.event_id_of(told)
    last = why.get((message.task, event_id))
    return WaitingMessage(
        handler=message.task,
        event_id=event_id,
        due_at=at,
        attempt=number_or(told.get(names.ATTEMPT), 1),
        why=f"{last.outcome} ({last.why})" if last else "",
    )


class FactsSeen(Sequence[Fact]):
    """All facts of this test, oldest first."""

    def __init__(self, log: MemoryFactLog) -> None:
        self._log = log

    def where(self, **wanted: Any) -> list[Fact]:
        """The facts whose fields, or whose values in `data`, are as *wanted*."""
        return [
            fact
            for fact in self._log.read()
            if all(_value(fact, name) == value for name, value in wanted.items())
        ]

    def __len__(self) -> int:
        return len(self._log.read())

    def __iter__(self) -> Iterator[Fact]:
        return iter(self._log.read())

    @overload
    def __getitem__(self, index: int) -> Fact: ...
    @overload
    def __getitem__(self, index: slice) -> list[Fact]: ...
    def __getitem__(self, index: int | slice) -> Fact | list[Fact]:
        """One fact, or some."""
        return self._log.read()[index]

    def __repr__(self) -> str:
        return "\n".join(f"{one.tool_id} {one.subtype} {dict(one.data)}" for one in self)


def _value(fact: Fact, name: str) -> Any:
    return getattr(fact, name) if hasattr(fact, name) else fact.data.get(name)
