"""Checkpoints: how far ordered handlers have come, and how far they are behind (spec P2).

Lanes keep the order (`angzarr.ordering`); moving one counts in its handler's checkpoint. Lag is
measured against the event books. An event that is in no book shows only once it waits in a lane.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, NamedTuple, Protocol

from angzarr.aggregates.book import EventStore, Head, Pending
from angzarr.clock import Clock
from angzarr.ordering.lane import Gap, Order, Summary
from angzarr.ordering.lane_view import OrderingSample, samples_of
from angzarr.ordering.lanes import Lanes


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The progress of a handler and its last event: events that moved a lane, skipped ones too."""

    last_event_id: str
    last_event_type: str
    last_processed_at: datetime
    events_processed: int


class Checkpoints(Protocol):
    """Where checkpoints are kept: beside the lanes. All verbs raise StoreUnavailable."""

    @abstractmethod
    def get(self, projection: str, /) -> Checkpoint | None:
        """The checkpoint of *projection*; None: it has processed nothing yet."""

    @abstractmethod
    def by_type(self, projection: str, /) -> Mapping[str, Checkpoint]:
        """One for each type of event that it has processed."""

    @abstractmethod
    def update(self, projection: str, checkpoint: Checkpoint, /) -> None:
        """Set the checkpoint to exactly *checkpoint*, whether there was one or not."""

    @abstractmethod
    def reset(self, projection: str, /) -> None:
        """Clear it; safe to repeat."""


class OrderingStores(NamedTuple):
    """The stores in the database of the order. To be closed."""

    lanes: Lanes
    checkpoints: Checkpoints

    def close(self) -> None:
        """Let connections go, those of both; safe to call twice."""
        self.lanes.close()


#: Books whose places are read at once: enough that a million are a hundred questions.
_PAGE: Final = 10_000
#: What `Lanes.places` and `EventStore.pending` take at most.
_CHUNK: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """The events that a handler has not passed yet, as it was `at`."""

    handler: str
    at: datetime
    #: What the books have more than was passed: each type once, by name.
    by_type: tuple[Pending, ...]
    #: Aggregates that are behind their books, by whatever type.
    lanes_behind: int
    #: Domains of the handler that have no book: all that is known of them waits in lanes.
    without_books: frozenset[str]
    #: What waits in lanes, of whatever type; None: it was asked for some types only.
    waits: Summary | None

    @property
    def events_behind(self) -> int:
        """How many events at least: those in books, or those in lanes where they are more."""
        counted = sum(one.events for one in self.by_type)
        return max(counted, self.waits.parked + self.waits.blocked) if self.waits else counted

    @property
    def time_behind(self) -> timedelta | None:
        """How long ago the oldest of them occurred or began to wait; None: none is known."""
        moments = [one.oldest for one in self.by_type]
        oldest = _oldest([*moments, self.waits.oldest if self.waits else None])
        return None if oldest is None else since(oldest, self.at)


def since(oldest: datetime, now: datetime) -> timedelta:
    """How long ago *oldest* was, never less than 0: the clocks of two hosts differ."""
    return max(now - oldest, timedelta(0))


def lag_of(
    handler: str,
    order: Order,
    *,
    store: EventStore | None,
    lanes: Lanes,
    now: datetime,
    types: Collection[str] = (),
) -> Lag:
    """Measure how far *handler* is behind, for *types* only if there are any.

    None for *store*: there are no books. It reads the place of every book, 10,000 at a time, and
    counts the events of those that are behind. Raises StoreUnavailable.
    """
    (waits,) = lanes.summaries([handler])
    tally = _Tally(frozenset(types))
    if store is not None:
        for page in _pages(store, sorted(order.domains)):
            tally.seen.update(head.address.domain for head in page)
            for chunk in _chunks(page):
                tally.count(store, _behind(chunk, handler, order, lanes))
    return Lag(
        handler=handler,
        at=now,
        by_type=tally.by_type(),
        lanes_behind=tally.lanes,
        without_books=order.domains - tally.seen,
        waits=None if types else waits,
    )


def bookless_of(
    handler: str,
    order: Order,
    *,
    store: EventStore | None,
    lanes: Lanes,
    checkpoints: Checkpoints,
) -> int:
    """How many events *handler* has passed, at least, that are in no event book.

    Those cannot come again after a reset. By its checkpoint, so that places which a person skipped
    to may hide some. It reads the place of every book; raises StoreUnavailable.
    """
    checkpoint = checkpoints.get(handler)
    if checkpoint is None:
        return 0
    passed = 0
    for page in _pages(store, sorted(order.domains)) if store is not None else ():
        for chunk in _chunks(page):
            places = lanes.places(handler, [book.address for book in chunk])
            passed += sum(
                min(places.get(book.address, order.first), book.next_sequence) - order.first
                for book in chunk
            )
    return max(checkpoint.events_processed - passed, 0)


class _Tally:
    """The counts up to now: as much memory as there are types."""

    def __init__(self, types: frozenset[str]) -> None:
        self._types = types
        self._found: dict[str, Pending] = {}
        self.lanes = 0
        self.seen: set[str] = set()

    def count(self, store: EventStore, behind: Sequence[Head]) -> None:
        self.lanes += len(behind)
        for one in store.pending(behind) if behind else ():
            if not self._types or one.type in self._types:
                before = self._found.get(one.type, Pending(one.type, 0, None))
                oldest = _oldest([before.oldest, one.oldest])
                self._found[one.type] = Pending(one.type, before.events + one.events, oldest)

    def by_type(self) -> tuple[Pending, ...]:
        return tuple(self._found[name] for name in sorted(self._found))


def _pages(store: EventStore, domains: Sequence[str]) -> Iterator[Sequence[Head]]:
    after = None
    while page := store.heads(domains, after, _PAGE):
        yield page
        after = page[-1].address


def _chunks(page: Sequence[Head]) -> Iterator[Sequence[Head]]:
    for begin in range(0, len(page), _CHUNK):
        yield page[begin : begin + _CHUNK]


def _behind(books: Sequence[Head], handler: str, order: Order, lanes: Lanes) -> list[Head]:
    """The places of the lanes whose books go on."""
    places = lanes.places(handler, [book.address for book in books])
    found = [Head(book.address, places.get(book.address, order.first)) for book in books]
    return [
        place
        for place, book in zip(found, books, strict=True)
        if place.next_sequence < book.next_sequence
    ]


def _oldest(moments: Iterable[datetime | None]) -> datetime | None:
    return min((at for at in moments if at is not None), default=None)


#: Counting what is behind reads the place of every book: this many times as long it rests then.
_REST: Final = 20


@dataclass(slots=True, kw_only=True)
class LagWatch:
    """Used by one thread. What was counted last is shown until it is counted again."""

    #: The ordered handlers by name.
    orders: Mapping[str, Order]
    lanes: Lanes
    #: None: there are no event books.
    store: EventStore | None
    show: Callable[[Sequence[OrderingSample]], object]
    clock: Clock
    _behind: dict[str, int] = field(default_factory=dict, init=False)
    _count_at: datetime | None = field(default=None, init=False)

    def counted(self, summaries: Sequence[Summary], gaps: Sequence[Gap]) -> None:
        """Show what was counted of lanes, with how many events they are behind.

        Raises StoreUnavailable; then the rest was shown with what is known from before.
        """
        self.show(samples_of(summaries, gaps, self._behind))
        began = self.clock.now()
        if self._count_at is not None and began < self._count_at:
            return
        for name, order in self.orders.items():
            lag = lag_of(name, order, store=self.store, lanes=self.lanes, now=began)
            self._behind[name] = lag.events_behind
        now = self.clock.now()
        self._count_at = now + (now - began) * _REST
        self.show(samples_of(summaries, gaps, self._behind))
