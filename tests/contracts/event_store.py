"""What every EventStore must do. Adapters' tests subclass this on the real server."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta, timezone
from itertools import groupby
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.contracts.books import deciding, everything

from angzarr.aggregates.book import Address, EventBooks, EventStore, Head, Pending, Write
from angzarr.events.event import Event

AT = datetime(2026, 3, 1, 12, 30, 15, 123456, tzinfo=UTC)
TOMORROW = AT + timedelta(days=1)


def event(kind: str = "Counted", **fields: object) -> Event:
    return Event(id=str(uuid4()), type=kind, data={}, **fields)


def fill(books: EventBooks, address: Address, *events: Event) -> tuple[Event, ...]:
    """Append *events* to the book at *address*; return them with their places."""
    return books.write(Write(address=address, decision=deciding(*events))).decision.events


def all_heads(store: EventStore, domains: list[str], limit: int) -> list[Head]:
    """Read page by page to the end."""
    found: list[Head] = []
    while page := store.heads(domains, found[-1].address if found else None, limit):
        assert len(page) <= limit
        found += page
    return found


def all_events(store: EventStore, domains: list[str], limit: int) -> list[Event]:
    """Read page by page to the end."""
    found: list[Event] = []
    start = None
    while page := store.scan(domains, start, limit):
        assert len(page) <= limit
        found += page
        start = behind(page[-1])
    return found


def address_of(one: Event) -> Address:
    return Address(one.domain, one.root, one.edition or "")


def behind(one: Event) -> Head:
    return Head(address_of(one), one.sequence + 1)


class EventStoreContract:
    """Subclasses give `books` and a `store` that reads them."""

    @pytest.fixture
    def books(self) -> EventBooks:
        raise NotImplementedError

    @pytest.fixture
    def store(self, books) -> EventStore:
        raise NotImplementedError

    @pytest.fixture
    def domain(self):
        """A domain of the test's own."""
        return f"d{uuid4()}"

    def test_where_nobody_wrote_there_is_nothing(self, store, domain):
        nowhere = Address(domain, "r")
        assert store.heads([domain], None, 10) == []
        assert store.heads([], None, 10) == []
        assert store.scan([domain], Head(nowhere, 3), 10) == []
        assert store.pending([Head(nowhere, 0)]) == []
        assert store.pending([]) == []

    def test_events_are_read_as_they_were_written(self, books, store, domain):
        written = fill(books, Address(domain, "r", "what-if"), everything(), event())
        assert tuple(store.scan([domain], None, 10)) == written

    def test_heads_say_where_books_are(self, books, store, domain):
        main, other = Address(domain, "r"), Address(domain, "r", "what-if")
        fill(books, main, event(), event())
        fill(books, main, event())
        fill(books, other, event())
        assert set(store.heads([domain], None, 10)) == {Head(main, 3), Head(other, 1)}

    def test_a_book_without_an_event_is_at_its_beginning(self, books, store, domain):
        place = Address(domain, "r")
        fill(books, place)
        assert store.heads([domain], None, 10) == [Head(place, 0)]
        assert store.scan([domain], None, 10) == []

    def test_only_the_domains_that_are_asked_for_are_read(self, books, store, domain):
        # A domain that begins like another one is another one.
        domains = [domain, f"{domain}-b", f"{domain}.b", f"{domain}b"]
        for name in domains:
            fill(books, Address(name, "r"), event())
        for asked in ([domain], domains[1:3], domains[::-1], [domain, domain, "nobodys"]):
            assert {one.domain for one in all_events(store, asked, 1)} == {*asked} - {"nobodys"}
            heads = all_heads(store, asked, 1)
            assert sorted(one.address.domain for one in heads) == sorted({*asked} - {"nobodys"})

    @pytest.mark.parametrize("limit", [1, 2, 3, 100])
    def test_pages_of_any_size_make_the_same_whole(self, books, store, domain, limit):
        domains = [f"{domain}-{number}" for number in range(3)]
        written = []
        for name in domains:
            # Texts that collations put in another order than bytes.
            for root in ("a", "A", "b-c", "bC", "B", "ä", "_", "Z z"):
                for edition in ("", "x", "X"):
                    place = Address(name, root, edition)
                    written += fill(books, place, event(), event())
        heads, events = all_heads(store, domains, limit), all_events(store, domains, limit)
        assert len(heads) == len(set(heads)) == 3 * 8 * 3
        assert Counter(one.id for one in events) == Counter(one.id for one in written)
        assert [address for address, _ in groupby(events, address_of)] == [
            head.address for head in heads
        ]
        assert [one.sequence for one in events] == [0, 1] * len(heads)

    def test_a_scan_goes_on_in_the_middle_of_a_book(self, books, store, domain):
        written = fill(books, Address(domain, "r"), *[event() for _ in range(5)])
        for first in range(7):
            found = store.scan([domain], Head(Address(domain, "r"), first), 10)
            assert tuple(found) == written[first:]

    def test_a_page_goes_on_behind_a_book_that_is_not_there(self, books, store, domain):
        for root in ("a", "c"):
            fill(books, Address(domain, root), event())
        missing = Address(domain, "b")
        assert [one.address.root for one in store.heads([domain], missing, 9)] == ["c"]
        assert [one.root for one in store.scan([domain], Head(missing, 5), 9)] == ["c"]

    def test_a_page_goes_on_behind_a_domain_that_is_not_asked_for(self, books, store, domain):
        first, last = f"{domain}-1", f"{domain}-3"
        for name in (first, last):
            fill(books, Address(name, "r"), event())
        between = Address(f"{domain}-2", "r")
        assert [one.address.domain for one in store.heads([first, last], between, 9)] == [last]
        assert [one.domain for one in store.scan([first, last], Head(between, 0), 9)] == [last]

    def test_pending_counts_by_type_from_each_place_to_the_end(self, books, store, domain):
        one, two = Address(domain, "r-1"), Address(domain, "r-2", "what-if")
        fill(books, one, *[event("Bid", occurred_at=AT + timedelta(hours=n)) for n in range(4)])
        fill(books, two, event("Bid", occurred_at=AT), event("Won", occurred_at=TOMORROW))
        fill(books, Address(domain, "r-2"), event("Lost", occurred_at=AT))
        assert store.pending([Head(one, 2), Head(two, 0)]) == [
            Pending("Bid", 3, AT),
            Pending("Won", 1, TOMORROW),
        ]
        assert store.pending([Head(one, 2), Head(two, 1)]) == [
            Pending("Bid", 2, AT + timedelta(hours=2)),
            Pending("Won", 1, TOMORROW),
        ]
        assert store.pending([Head(one, 4), Head(two, 7)]) == []

    def test_the_oldest_is_the_earliest_moment_whatever_its_zone(self, books, store, domain):
        place = Address(domain, "r")
        there = AT.astimezone(timezone(timedelta(hours=-11)))
        fill(books, place, event(occurred_at=TOMORROW), event(occurred_at=there), event())
        assert store.pending([Head(place, 0)]) == [Pending("Counted", 3, AT)]

    def test_events_that_do_not_say_when_they_occurred_are_counted(self, books, store, domain):
        place = Address(domain, "r")
        fill(books, place, event(), event())
        assert store.pending([Head(place, 0)]) == [Pending("Counted", 2, None)]

    def test_a_thousand_places_are_counted_at_once(self, books, store, domain):
        odd = "ü,{}\"'\\ \N{GRINNING FACE}"
        places = [Address(domain, f"{odd}{number}") for number in range(1000)]
        for place in places[::100]:
            fill(books, place, event(), event())
        assert store.pending([Head(place, 1) for place in places]) == [Pending("Counted", 10, None)]

    def test_random_books_are_read_as_a_sorted_list(self, books, store):
        compare_with_a_list(books, store)

    def test_closing_twice_is_as_good_as_once(self, store):
        store.close()
        store.close()


def compare_with_a_list(books: EventBooks, store: EventStore) -> None:
    """Fill random books, read them in random pages, and count from random places."""
    names = st.tuples(st.integers(0, 2), st.sampled_from("aBc"), st.sampled_from(["", "x"]))
    filled = st.dictionaries(names, st.lists(st.sampled_from(["Bid", "Won"]), max_size=4))

    @given(filled, st.integers(1, 5), st.data())
    @settings(max_examples=25)
    def run(event_stores, limit, data):
        mine = f"d{uuid4()}"
        written: dict[Address, tuple[Event, ...]] = {}
        for (number, root, edition), kinds in event_stores.items():
            place = Address(f"{mine}-{number}", root, edition)
            written[place] = fill(books, place, *[event(kind, occurred_at=AT) for kind in kinds])
        domains = [f"{mine}-{number}" for number in range(3)]
        heads = all_heads(store, domains, limit)
        assert {head.address: head.next_sequence for head in heads} == {
            place: len(events) for place, events in written.items()
        }
        order = [one for head in heads for one in written[head.address]]
        assert all_events(store, domains, limit) == order
        if order:
            start = data.draw(st.integers(0, len(order) - 1))
            begin = behind(order[start])._replace(next_sequence=order[start].sequence)
            assert store.scan(domains, begin, 100) == order[start:]
        places = [Head(place, data.draw(st.integers(0, 5))) for place in written]
        counted = Counter(one.type for head in places for one in _rest(written, head))
        assert store.pending(places) == [
            Pending(kind, events, AT) for kind, events in sorted(counted.items())
        ]

    run()


def _rest(written: dict[Address, tuple[Event, ...]], head: Head) -> tuple[Event, ...]:
    return written[head.address][head.next_sequence :]
