"""A schedule in this process's memory: for tests, and where the broker is in this process too."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter

from angzarr.clock import Clock, SystemClock
from angzarr.delivery.schedule import Row, TakenRows, row_of
from angzarr.events.event import Message


@dataclass(slots=True)
class _WaitingMessage:
    row: Row
    due_at: datetime
    token: str = ""


class MemorySchedule:
    """Messages that wait, seen by this process only; safe to use from many threads."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._waiting: dict[str, _WaitingMessage] = {}

    def put(self, copy: Message, at: datetime, /) -> None:
        """Let *copy* wait until *at*."""
        row = row_of(copy)
        with self._lock:
            self._waiting[row.id] = _WaitingMessage(row, at)

    def take(self, token: str, limit: int, lease: timedelta, /) -> TakenRows:
        """Lend what is due."""
        with self._lock:
            now = self._clock.now()
            everything = self._waiting.values()
            found = [one for one in everything if one.token == token and one.due_at > now]
            if not found:
                due = [one for one in everything if one.due_at <= now]
                found = sorted(due, key=attrgetter("due_at"))[:limit]
                for one in found:
                    one.token, one.due_at = token, now + lease
            first = min((one.due_at for one in everything), default=None)
            rows = [one.row for one in found]
            return TakenRows(rows, None if first is None else first - now)

    def done(self, token: str, ids: Sequence[str], /) -> None:
        """Delete what *token* still holds."""
        with self._lock:
            for one in self._held(token, ids):
                del self._waiting[one.row.id]

    def give_back(self, token: str, ids: Sequence[str], pause: timedelta, /) -> None:
        """Let what *token* still holds be due after *pause*."""
        with self._lock:
            for one in self._held(token, ids):
                one.token, one.due_at = "", self._clock.now() + pause

    def waiting(self) -> list[tuple[Row, datetime]]:
        """The rows that wait, each with its time, the earliest first."""
        with self._lock:
            found = sorted(self._waiting.values(), key=attrgetter("due_at"))
            return [(one.row, one.due_at) for one in found]

    def close(self) -> None:
        """Keep the waiting messages: there is no connection to close."""

    def _held(self, token: str, ids: Sequence[str]) -> list[_WaitingMessage]:
        found = (self._waiting.get(name) for name in ids)
        return [one for one in found if one is not None and one.token == token]
