"""MemoryEventStore: the event books of one process read as one."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice

from angzarr.adapters.memory.books import MemoryEventBooks, Shelf
from angzarr.aggregates.book import Address, EventStore, Head, Pending
from angzarr.events.event import Event


class MemoryEventStore(EventStore):
    """Reads *books* under their lock, ordered by address."""

    def __init__(self, books: MemoryEventBooks) -> None:
        self._books = books

    def heads(self, domains: Sequence[str], after: Address | None, limit: int, /) -> Sequence[Head]:
        """Return where the books of *domains* are, those behind *after*."""

        def look(shelves: Mapping[Address, Shelf]) -> list[Head]:
            found = _chosen(shelves, domains, lambda place: after is None or place > after)
            return [Head(one, len(shelves[one].events)) for one in heapq.nsmallest(limit, found)]

        return self._books.visit(look)

    def scan(self, domains: Sequence[str], start: Head | None, limit: int, /) -> Sequence[Event]:
        """Return events of *domains*, from the one at *start* on."""

        def look(shelves: Mapping[Address, Shelf]) -> list[Event]:
            found = _chosen(shelves, domains, lambda place: start is None or place >= start.address)
            return list(islice(_events(shelves, sorted(found), start), limit))

        return self._books.visit(look)

    def pending(self, places: Sequence[Head], /) -> Sequence[Pending]:
        """Count the events from each of *places* to the end of its book, by type."""

        def look(shelves: Mapping[Address, Shelf]) -> list[Pending]:
            found: dict[str, Pending] = {}
            for address, following in places:
                shelf = shelves.get(address)
                for event in shelf.events[following:] if shelf else ():
                    sofar = found.get(event.type, Pending(event.type, 0, None))
                    oldest = _older(sofar.oldest, event.occurred_at)
                    found[event.type] = Pending(event.type, sofar.events + 1, oldest)
            return sorted(found.values())

        return self._books.visit(look)

    def close(self) -> None:
        """Do nothing: the books are another's."""


def _chosen(
    shelves: Mapping[Address, Shelf], domains: Sequence[str], fits: Callable[[Address], bool]
) -> list[Address]:
    return [place for place in shelves if place.domain in domains and fits(place)]


def _events(
    shelves: Mapping[Address, Shelf], order: Sequence[Address], start: Head | None
) -> Iterator[Event]:
    for address in order:
        begins = start is not None and address == start.address
        yield from islice(
            shelves[address].events, start.next_sequence if start and begins else 0, None
        )


def _older(one: datetime | None, other: datetime | None) -> datetime | None:
    return min((at for at in (one, other) if at is not None), default=None)
