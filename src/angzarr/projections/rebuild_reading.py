"""What a rebuild reads of the event store: the scan from a place on, and what aggregates lack."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from typing import Final

from angzarr.aggregates.book import Address
from angzarr.aggregates.event_store import EventStore, Head
from angzarr.events.event import Event
from angzarr.projections.green import Behind, Plan

#: Heads that are read at once; as many as a question for places may have.
_PAGE: Final = 1_000


def head_of(event: Event) -> Head:
    """Return the place of *event* in its book, which it has: it was read there."""
    assert event.domain is not None  # noqa: S101 - narrows
    assert event.root is not None  # noqa: S101 - narrows
    assert event.sequence is not None  # noqa: S101 - narrows
    return Head(Address(event.domain, event.root, event.edition or ""), event.sequence)


def head_after(event: Event) -> Head:
    """Return the place behind that of *event*."""
    address, sequence = head_of(event)
    return Head(address, sequence + 1)


def batches(
    store: EventStore, plan: Plan, start: Head | None, limit: int
) -> Generator[Sequence[Event]]:
    """Yield the events from *start* on; the next batch is read while one is in hand."""

    def read(place: Head | None) -> Sequence[Event]:
        return store.scan(plan.domains, place, limit)

    with ThreadPoolExecutor(1, "angzarr-rebuild") as ahead:
        waiting = ahead.submit(read, start)
        while events := waiting.result():
            waiting = ahead.submit(read, head_after(events[-1]))
            yield events


def heads(store: EventStore, plan: Plan) -> Iterator[Sequence[Head]]:
    """Yield where all books are, some at a time."""
    after: Address | None = None
    while page := store.heads(plan.domains, after, _PAGE):
        yield page
        after = page[-1].address


def events_in(store: EventStore, plan: Plan) -> int:
    """Count the events that a rebuild has before it."""
    return sum(
        max(head.next_sequence - plan.first, 0) for page in heads(store, plan) for head in page
    )


class Survey:
    """One pass through all books: which are further than their *places*, and how long they are."""

    def __init__(
        self,
        store: EventStore,
        plan: Plan,
        places: Callable[[Sequence[Address]], Mapping[Address, int]],
    ) -> None:
        self._pages = heads(store, plan)
        self._first = plan.first
        self._places = places
        #: Events in the books that were gone through.
        self.total = 0

    def __iter__(self) -> Iterator[Behind]:
        for page in self._pages:
            known = self._places([head.address for head in page])
            for address, end in page:
                self.total += max(end - self._first, 0)
                if (place := known.get(address, self._first)) < end:
                    yield Behind(address, place, end)


def missing(
    store: EventStore, plan: Plan, lacking: Iterable[Behind], limit: int
) -> Iterator[list[Event]]:
    """Yield the events that aggregates lack, as far as books have them, some *limit* at a time."""
    batch: list[Event] = []
    for one in lacking:
        for event in _of(store, plan, one, limit):
            batch.append(event)
            if len(batch) >= limit:
                yield batch
                batch = []
    if batch:
        yield batch


def _of(store: EventStore, plan: Plan, lacking: Behind, limit: int) -> Iterator[Event]:
    place = lacking.place

    def ours(event: Event) -> bool:
        address, sequence = head_of(event)
        return address == lacking.address and sequence < lacking.until

    while place < lacking.until:
        most = min(lacking.until - place, limit)
        found = list(takewhile(ours, store.scan(plan.domains, Head(lacking.address, place), most)))
        if not found:
            return
        yield from found
        place = head_after(found[-1]).next_sequence
