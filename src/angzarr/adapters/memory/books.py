"""MemoryEventBooks: event books in one process, for tests and embedded apps."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeVar

from angzarr.aggregates.book import (
    Address,
    Answer,
    Book,
    Decision,
    EventBooks,
    Kept,
    Reading,
    Retention,
    Snapshot,
    Stale,
    Unsent,
    Write,
    numbered,
)
from angzarr.clock import Clock, SystemClock
from angzarr.events.event import Event

A = TypeVar("A")


@dataclass(slots=True)
class Shelf:
    """One book, and what was decided there."""

    events: list[Event] = field(default_factory=list)
    decisions: dict[str, Decision] = field(default_factory=dict)
    #: When each was made.
    decided: dict[str, datetime] = field(default_factory=dict)
    snapshots: list[Snapshot] = field(default_factory=list)


class MemoryEventBooks(EventBooks):
    """Books in a dictionary; one lock for all."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._shelves: dict[Address, Shelf] = {}
        self._unsent: dict[tuple[Address, str], datetime] = {}
        self._lock = threading.Lock()

    def read(
        self, address: Address, /, *, cause: str | None = None, whole: bool = False
    ) -> Reading:
        """Return the book and what was decided of *cause*."""
        with self._lock:
            shelf = self._shelves.get(address)
            if shelf is None:
                return Reading(Book(address=address))
            snapshot = shelf.snapshots[-1] if shelf.snapshots and not whole else None
            events = tuple(shelf.events[snapshot.sequence if snapshot else 0 :])
            book = Book(
                address=address,
                events=events,
                snapshot=snapshot,
                next_sequence=len(shelf.events),
            )
            return Reading(book, None if cause is None else shelf.decisions.get(cause))

    def write(self, write: Write, /) -> Answer:
        """Keep a decision and append its events."""
        with self._lock:
            shelf = self._shelves.setdefault(write.address, Shelf())
            cause, first = write.decision.cause, len(shelf.events)
            if cause in shelf.decisions:
                return Kept(shelf.decisions[cause], anew=False)
            if write.expected is not None and write.expected != first:
                return Stale(first)
            events = numbered(write.decision.events, write.address, first)
            shelf.events.extend(events)
            shelf.decisions[cause] = decision = replace(write.decision, events=events)
            if write.snapshot is not None:
                shelf.snapshots = [*filter(_lasts, shelf.snapshots), write.snapshot]
            shelf.decided[cause] = now = self._clock.now()
            if write.unsent and events:
                self._unsent[write.address, cause] = now
            return Kept(decision, anew=True)

    def unsent(self, before: datetime, limit: int, /) -> Sequence[Unsent]:
        """Return decisions whose events count as unsent."""
        with self._lock:
            due = sorted((at, place) for place, at in self._unsent.items() if at < before)
            return [
                Unsent(address, self._shelves[address].decisions[cause])
                for _, (address, cause) in due[:limit]
            ]

    def sent(self, address: Address, cause: str, /) -> None:
        """Note that what was decided of *cause* is sent."""
        with self._lock:
            self._unsent.pop((address, cause), None)

    def visit(self, look: Callable[[Mapping[Address, Shelf]], A], /) -> A:
        """Return what *look* makes of all books while nobody writes; it must keep none of them."""
        with self._lock:
            return look(self._shelves)

    def prune(self, before: datetime, /, *, limit: int) -> int:
        """Forget decisions of before *before* whose events are sent."""
        with self._lock:
            old = sorted(
                (at, address, cause)
                for address, shelf in self._shelves.items()
                for cause, at in shelf.decided.items()
                if at < before and (address, cause) not in self._unsent
            )
            for _, address, cause in old[:limit]:
                shelf = self._shelves[address]
                del shelf.decisions[cause], shelf.decided[cause]
        return len(old[:limit])

    def close(self) -> None:
        """Do nothing: what is here is kept."""


def _lasts(snapshot: Snapshot) -> bool:
    return snapshot.retention is Retention.PERSIST
