"""The event store of one process: books, all of them read as one, and rejected commands."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from typing import TypeVar

from angzarr.aggregates.book import (
    Address,
    Answer,
    Book,
    Decision,
    EventBooks,
    EventStore,
    Head,
    Kept,
    Pending,
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
from angzarr.sagas.log import (
    CLOSED,
    AskedAgain,
    Case,
    CaseFilter,
    RejectionLog,
    asked_again,
    fits,
    noted,
)

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
        self._by_address: dict[Address, Shelf] = {}
        self._unsent: dict[tuple[Address, str], datetime] = {}
        self._lock = threading.Lock()

    def read(
        self, address: Address, /, *, cause: str | None = None, whole: bool = False
    ) -> Reading:
        """The book and what was decided of *cause*."""
        with self._lock:
            shelf = self._by_address.get(address)
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
            shelf = self._by_address.setdefault(write.address, Shelf())
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
        """Decisions whose events count as unsent."""
        with self._lock:
            due = sorted((at, place) for place, at in self._unsent.items() if at < before)
            return [
                Unsent(address, self._by_address[address].decisions[cause])
                for _, (address, cause) in due[:limit]
            ]

    def sent(self, address: Address, cause: str, /) -> None:
        """Note that what was decided of *cause* is sent."""
        with self._lock:
            self._unsent.pop((address, cause), None)

    def visit(self, look: Callable[[Mapping[Address, Shelf]], A], /) -> A:
        """The answer of *look* to all books, which do not change meanwhile; it keeps none."""
        with self._lock:
            return look(self._by_address)

    def prune(self, before: datetime, /, *, limit: int) -> int:
        """Forget decisions of before *before* whose events are sent."""
        with self._lock:
            old = sorted(
                (at, address, cause)
                for address, shelf in self._by_address.items()
                for cause, at in shelf.decided.items()
                if at < before and (address, cause) not in self._unsent
            )
            for _, address, cause in old[:limit]:
                shelf = self._by_address[address]
                del shelf.decisions[cause], shelf.decided[cause]
        return len(old[:limit])

    def close(self) -> None:
        """Do nothing: what is here is kept."""


def _lasts(snapshot: Snapshot) -> bool:
    return snapshot.retention is Retention.PERSIST


class MemoryEventStore(EventStore):
    """Reads *books* under their lock, ordered by address."""

    def __init__(self, books: MemoryEventBooks) -> None:
        self._books = books

    def heads(self, domains: Sequence[str], after: Address | None, limit: int, /) -> Sequence[Head]:
        """The next sequences of the books of *domains*, those behind *after*."""

        def look(by_address: Mapping[Address, Shelf]) -> list[Head]:
            found = _chosen(by_address, domains, lambda place: after is None or place > after)
            return [Head(one, len(by_address[one].events)) for one in heapq.nsmallest(limit, found)]

        return self._books.visit(look)

    def scan(self, domains: Sequence[str], start: Head | None, limit: int, /) -> Sequence[Event]:
        """Events of *domains*, from the one at *start* on."""

        def look(by_address: Mapping[Address, Shelf]) -> list[Event]:
            found = _chosen(
                by_address, domains, lambda place: start is None or place >= start.address
            )
            return list(islice(_events(by_address, sorted(found), start), limit))

        return self._books.visit(look)

    def pending(self, places: Sequence[Head], /) -> Sequence[Pending]:
        """Count the events from each of *places* to the end of its book, by type."""

        def look(by_address: Mapping[Address, Shelf]) -> list[Pending]:
            found: dict[str, Pending] = {}
            for address, following in places:
                shelf = by_address.get(address)
                for event in shelf.events[following:] if shelf else ():
                    sofar = found.get(event.type, Pending(event.type, 0, None))
                    oldest = _older(sofar.oldest, event.occurred_at)
                    found[event.type] = Pending(event.type, sofar.events + 1, oldest)
            return sorted(found.values())

        return self._books.visit(look)

    def close(self) -> None:
        """Do nothing: the books are another's."""


def _chosen(
    by_address: Mapping[Address, Shelf], domains: Sequence[str], fits: Callable[[Address], bool]
) -> list[Address]:
    return [place for place in by_address if place.domain in domains and fits(place)]


def _events(
    by_address: Mapping[Address, Shelf], order: Sequence[Address], start: Head | None
) -> Iterator[Event]:
    for address in order:
        begins = start is not None and address == start.address
        yield from islice(
            by_address[address].events, start.next_sequence if start and begins else 0, None
        )


def _older(one: datetime | None, other: datetime | None) -> datetime | None:
    return min((at for at in (one, other) if at is not None), default=None)


class MemoryRejectionLog(RejectionLog):
    """Cases in a dictionary."""

    def __init__(self) -> None:
        self._cases: dict[str, Case] = {}
        self._lock = threading.Lock()

    def note(self, case: Case, /) -> Case:
        """Keep *case*."""
        with self._lock:
            self._cases[case.id] = kept = noted(self._cases.get(case.id), case)
            return kept

    def ask_again(self, id: str, asked: AskedAgain, /) -> Case | None:
        """Count that the source is asked again."""
        with self._lock:
            kept = self._cases.get(id)
            if kept is None:
                return None
            self._cases[id] = told = asked_again(kept, asked)
            return told

    def look(self, id: str, /) -> Sequence[Case]:
        """The cases whose id begins so, two at most."""
        with self._lock:
            found = sorted((key for key in self._cases if key.startswith(id)), key=len)
            return [self._cases[key] for key in found[:2]]

    def cases(
        self, wanted: CaseFilter, /, *, limit: int, before: tuple[datetime, str] | None = None
    ) -> Sequence[Case]:
        """Cases, the newest first."""
        with self._lock:
            found = [case for case in self._cases.values() if fits(case, wanted)]
        found.sort(key=lambda case: (case.rejected_at, case.id), reverse=True)
        later = [c for c in found if before is None or (c.rejected_at, c.id) < before]
        return [replace(case, rejection=None) for case in later[:limit]]

    def prune(self, before: datetime, /, *, limit: int) -> int:
        """Remove closed cases that did not change since *before*."""
        with self._lock:
            cases = self._cases.values()
            gone = [case.id for case in cases if case.status in CLOSED and case.changed_at < before]
            for one in gone[:limit]:
                del self._cases[one]
        return len(gone[:limit])

    def close(self) -> None:
        """Do nothing: what is here is kept."""
