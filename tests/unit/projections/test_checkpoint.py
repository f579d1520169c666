"""How far an ordered handler is behind, against what a person would count."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contracts.event_store import event, fill
from tests.hand_clock import START as NOW

from angzarr.adapters.memory.event_store import MemoryEventBooks, MemoryEventStore
from angzarr.aggregates.book import Address, Pending
from angzarr.ordering.lane import Order, Summary
from angzarr.projections import checkpoint as lag
from angzarr.projections.checkpoint import lag_of

HANDLER = "projection.sales"


class PlacesOfLanes:
    """The lanes that somebody moved, and what waits in all of them."""

    def __init__(self, places=(), *, parked=0, blocked=0, oldest=None) -> None:
        self.moved = dict(places)
        self.summary = Summary(HANDLER, len(self.moved), parked, blocked, oldest)
        self.asked: list[int] = []

    def places(self, handler, addresses):
        assert handler == HANDLER
        self.asked.append(len(addresses))
        return {one: self.moved[one] for one in addresses if one in self.moved}

    def summaries(self, handlers):
        assert handlers == [HANDLER]
        return [self.summary]


class CountedStore(MemoryEventStore):
    """Keeps how many it was asked for at a time."""

    def __init__(self, books) -> None:
        super().__init__(books)
        self.limits: list[int] = []
        self.counted: list[int] = []

    def heads(self, domains, after, limit):
        self.limits.append(limit)
        return super().heads(domains, after, limit)

    def pending(self, places):
        self.counted.append(len(places))
        return super().pending(places)


def order(*domains: str, first: int = 0) -> Order:
    return Order(domains=frozenset(domains or ("order",)), types=frozenset({"Bid"}), first=first)


def measure(store, lanes: Any = None, of: Order | None = None, **options: Any):
    given = lanes or PlacesOfLanes()
    return lag_of(HANDLER, of or order(), store=store, lanes=given, now=NOW, **options)


@pytest.fixture
def books():
    return MemoryEventBooks()


@pytest.fixture
def store(books):
    return CountedStore(books)


def ago(hours: int):
    return NOW - timedelta(hours=hours)


def test_a_handler_that_passed_all_is_not_behind(books, store):
    place = Address("order", "r")
    fill(books, place, event("Bid", occurred_at=ago(3)))
    found = measure(store, PlacesOfLanes({place: 1}))
    assert (found.events_behind, found.time_behind, found.lanes_behind) == (0, None, 0)
    assert found.without_books == frozenset()


def test_what_was_not_passed_is_counted_by_type_and_the_oldest_says_since_when(books, store):
    one, two = Address("order", "r-1"), Address("order", "r-2", "what-if")
    fill(books, one, *[event("Bid", occurred_at=ago(9 - n)) for n in range(3)])
    fill(books, two, event("Bid", occurred_at=ago(4)), event("Won", occurred_at=ago(2)))
    found = measure(store, PlacesOfLanes({one: 1}))
    assert found.by_type == (Pending("Bid", 3, ago(8)), Pending("Won", 1, ago(2)))
    assert (found.events_behind, found.time_behind) == (4, timedelta(hours=8))
    assert found.lanes_behind == 2


def test_only_some_types_may_be_asked_for(books, store):
    fill(books, Address("order", "r"), event("Bid", occurred_at=ago(4)), event("Won"), event("Won"))
    lanes = PlacesOfLanes(parked=7, blocked=1, oldest=ago(20))
    found = measure(store, lanes, types=["Won", "Lost"])
    assert found.by_type == (Pending("Won", 2, None),)
    assert (found.events_behind, found.time_behind) == (2, None), "what is parked has any type"


def test_a_lane_begins_with_the_first_sequence_of_its_handler(books, store):
    fill(books, Address("order", "r"), event("Bid"), event("Bid"), event("Bid"))
    assert measure(store, of=order(first=2)).events_behind == 1


def test_only_the_books_of_its_domains_are_read(books, store):
    for domain in ("order", "stock", "player"):
        fill(books, Address(domain, "r"), event("Bid"))
    found = measure(store, of=order("order", "stock", "nobodys"))
    assert found.events_behind == 2
    assert found.without_books == frozenset({"nobodys"})


def test_where_there_are_no_books_it_is_what_waits_in_lanes(store):
    lanes = PlacesOfLanes(parked=3, blocked=1, oldest=ago(5))
    for books in (None, store):
        found = measure(books, lanes)
        assert found.without_books == frozenset({"order"})
        assert (found.events_behind, found.time_behind) == (4, timedelta(hours=5))
        assert found.by_type == ()


def test_what_waits_in_lanes_is_not_counted_again(books, store):
    fill(books, Address("order", "r"), *[event("Bid", occurred_at=ago(7)) for _ in range(5)])
    found = measure(store, PlacesOfLanes(parked=4, blocked=1, oldest=ago(1)))
    assert (found.events_behind, found.time_behind) == (5, timedelta(hours=7))


def test_an_event_that_a_faster_clock_dated_is_not_negative(books, store):
    fill(books, Address("order", "r"), event("Bid", occurred_at=ago(-1)))
    assert measure(store).time_behind == timedelta(0)


def test_many_aggregates_are_read_in_pages_and_counted_in_chunks(books, store, monkeypatch):
    monkeypatch.setattr(lag, "_PAGE", 10)
    monkeypatch.setattr(lag, "_CHUNK", 4)
    places = [Address("order", f"r-{number:03}") for number in range(25)]
    for place in places:
        fill(books, place, event("Bid"))
    lanes = PlacesOfLanes({place: number % 2 for number, place in enumerate(places)})
    found = measure(store, lanes)
    assert found.events_behind == found.lanes_behind == 13
    assert store.limits == [10, 10, 10, 10]
    assert lanes.asked == [4, 4, 2, 4, 4, 2, 4, 1]
    assert store.counted == [2, 2, 1, 2, 2, 1, 2, 1]


def test_aggregates_that_are_not_behind_are_not_counted_one_by_one(books, store):
    place = Address("order", "r")
    fill(books, place, event("Bid"))
    measure(store, PlacesOfLanes({place: 1}))
    assert store.counted == []


names = st.builds(
    Address,
    st.sampled_from(["order", "stock"]),
    st.sampled_from("abcd"),
    st.sampled_from(["", "x"]),
)
moments = st.none() | st.integers(0, 9).map(ago)
event_stores = st.dictionaries(
    names, st.lists(st.tuples(st.sampled_from(["Bid", "Won", "Lost"]), moments), max_size=5)
)


@given(
    event_stores,
    st.dictionaries(names, st.integers(0, 7)),
    st.sets(st.sampled_from(["order", "stock"]), min_size=1),
    st.integers(0, 2),
    st.sets(st.sampled_from(["Bid", "Won"])),
    st.integers(1, 3),
)
def test_it_is_what_a_person_counts(written, moved, domains, first, types, size):
    """Against lists of all events, read in pages and chunks of any size."""
    books = MemoryEventBooks()
    for place, events in written.items():
        fill(books, place, *[event(kind, occurred_at=at) for kind, at in events])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(lag, "_PAGE", 2 * size)
        patched.setattr(lag, "_CHUNK", size)
        found = measure(
            MemoryEventStore(books), PlacesOfLanes(moved), order(*domains, first=first), types=types
        )
    left = {
        place: events[moved.get(place, first) :]
        for place, events in written.items()
        if place.domain in domains
    }
    wanted = [one for events in left.values() for one in events if not types or one[0] in types]
    assert {one.type: one.events for one in found.by_type} == {
        kind: sum(one == kind for one, _ in wanted) for kind in {kind for kind, _ in wanted}
    }
    assert found.events_behind == len(wanted)
    assert found.lanes_behind == sum(bool(events) for events in left.values())
    known = [at for _, at in wanted if at is not None]
    assert found.time_behind == (NOW - min(known) if known else None)
    assert found.without_books == domains - {place.domain for place in written}
