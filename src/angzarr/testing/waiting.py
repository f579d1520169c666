"""Waiting: what waits for its time, as a test reads it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from angzarr.delivery.schedule import Row, read_row
from angzarr.errors import DecodeError
from angzarr.events import headers as names
from angzarr.events.headers import number_or
from angzarr.testing.settled import Settled


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
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


def waiting_of(rows: Sequence[tuple[Row, datetime]], settled: Sequence[Settled]) -> list[Waiting]:
    """Return what *rows* say, the earliest first, with what is known of each."""
    why = {(one.handler, one.event_id): one for one in settled if one.delay is not None}
    return [_of(row, at, why) for row, at in rows]


def _of(row: Row, at: datetime, why: dict[tuple[str, str], Settled]) -> Waiting:
    try:
        message = read_row(row.text)
    except DecodeError:
        return Waiting(handler="?", event_id="?", due_at=at)
    told: Any = message.headers
    event_id = names.event_id_of(told)
    last = why.get((message.task, event_id))
    return Waiting(
        handler=message.task,
        event_id=event_id,
        due_at=at,
        attempt=number_or(told.get(names.ATTEMPT), 1),
        why=f"{last.outcome} ({last.why})" if last else "",
    )
