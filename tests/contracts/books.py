"""What every store of event books must do. Adapters' tests subclass this on the real server."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from angzarr.aggregates.book import (
    Address,
    Book,
    Decision,
    EventBooks,
    Kept,
    Reading,
    Retention,
    Snapshot,
    Stale,
    Write,
    WriteVerdict,
)
from angzarr.events.event import Event, Priority

AT = datetime(2026, 3, 1, 12, 30, 15, 123456, tzinfo=UTC)
DAY = timedelta(days=1)


DEFAULT, PERSIST = Retention.DEFAULT, Retention.PERSIST


def event(name: str = "e", **fields: object) -> Event:
    return Event(id=str(uuid4()), type="Counted", data={"n": name}, **fields)


def deciding(*events: Event, cause: str = "", **fields: object) -> Decision:
    return Decision(cause=cause or str(uuid4()), events=events, **fields)


def everything() -> Event:
    """An event that uses all its fields, and text that databases have trouble with."""
    return event(
        "ü\x00\u2028\ud800", correlation_id="flow", causation_id="because", tenant_id="t",
        priority=Priority.REALTIME, config_pins={"a": "1"}, occurred_at=AT, depth=7,
        traceparent="00-1-2-03",
    )  # fmt: skip


class EventBooksContract:
    """Subclasses give `books`."""

    @pytest.fixture
    def books(self) -> EventBooks:
        raise NotImplementedError

    @pytest.fixture
    def address(self) -> Address:
        return Address("player", str(uuid4()))

    @pytest.fixture
    def append(self, books, address):
        def append(*events, expected=None, **fields):
            return books.write(
                Write(address=address, decision=deciding(*events, **fields), expected=expected)
            )

        return append

    def test_a_book_that_nobody_wrote_is_empty(self, books, address):
        assert books.read(address, cause="c") == Reading(Book(address=address), None)

    def test_events_are_numbered_from_zero_and_read_as_they_were_written(
        self, books, address, append
    ):
        first, second = everything(), event("b")
        kept = append(first, second, expected=0)
        place = {"domain": "player", "root": address.root}
        told = (replace(first, sequence=0, **place), replace(second, sequence=1, **place))
        assert kept.anew
        assert kept.decision.events == told
        assert books.read(address).book == Book(address=address, events=told, next_sequence=2)

    def test_a_time_of_any_zone_is_the_same_moment(self, books, address, append):
        there = AT.astimezone(timezone(timedelta(hours=5, minutes=30)))
        append(event("a", occurred_at=there))
        (written,) = books.read(address).book.events
        assert written.occurred_at == there

    def test_a_wrong_expectation_is_refused_and_nothing_is_written(self, books, address, append):
        append(event("a"))
        before = books.read(address)
        for expected in (0, 2, 7):
            assert append(event("b"), expected=expected, cause="c") == Stale(1)
        assert books.read(address, cause="c") == before

    def test_no_expectation_appends_wherever_the_book_is(self, books, address, append):
        append(event("a"), event("b"))
        assert append(event("c")).decision.events[0].sequence == 2

    def test_a_cause_is_decided_once_whatever_is_expected_now(self, books, address, append):
        first = append(event("a"), event("b"), expected=0, cause="c").decision
        append(event("later"))
        again = append(event("other"), expected=0, cause="c", verdict=WriteVerdict.REJECTED)
        assert again == Kept(first, anew=False)
        assert books.read(address, cause="c").decision == first
        assert books.read(address).book.next_sequence == 3

    def test_a_decision_without_events_is_kept_with_its_reason_and_notes(
        self, books, address, append
    ):
        notes = {"commands": [{"type": "Join", "data": {"n": 1.5}}], "who": "ü\x00"}
        kept = append(cause="c", verdict=WriteVerdict.REJECTED, reason="full\x00", notes=notes)
        reading = books.read(address, cause="c")
        assert reading.decision == kept.decision
        assert (kept.decision.reason, kept.decision.notes) == ("full\x00", notes)
        assert reading.book == Book(address=address)

    def test_books_of_other_roots_domains_and_editions_are_others(self, books, address, append):
        append(event("a"), cause="c")
        for other in (
            address._replace(root="x" + address.root),
            address._replace(domain="table"),
            address._replace(edition="what-if"),
        ):
            assert books.read(other, cause="c") == Reading(Book(address=other), None)

    def test_an_edition_is_told_by_its_events(self, books, address):
        there = address._replace(edition="what-if")
        books.write(Write(address=there, decision=deciding(event("a"))))
        (written,) = books.read(there).book.events
        assert (written.edition, written.sequence) == ("what-if", 0)

    def test_a_snapshot_stands_for_the_events_before_it(self, books, address, append):
        append(event("a"), event("b"))
        snapshot = Snapshot(sequence=3, state={"n": [1, "ü\x00"]}, version=4)
        write = Write(address=address, decision=deciding(event("c")), snapshot=snapshot)
        books.write(write)
        append(event("d"))
        book = books.read(address).book
        assert book.snapshot == snapshot
        assert [one.sequence for one in book.events] == [3]
        assert book.next_sequence == 4
        whole = books.read(address, whole=True).book
        assert whole.snapshot is None
        assert [one.sequence for one in whole.events] == [0, 1, 2, 3]

    def test_the_newest_snapshot_is_read(self, books, address):
        for place, retention in (
            (1, Retention.PERSIST),
            (2, Retention.DEFAULT),
            (3, Retention.DEFAULT),
        ):
            snapshot = Snapshot(sequence=place, state=place, retention=retention)
            write = Write(address=address, decision=deciding(event()), snapshot=snapshot)
            books.write(write)
            assert books.read(address).book.snapshot == snapshot

    def test_of_many_writers_with_one_expectation_one_succeeds(self, books, address):
        def write(number):
            decision = deciding(event(str(number)), event(str(number)))
            return books.write(Write(address=address, decision=decision, expected=0))

        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(write, range(16)))
        assert sum(isinstance(answer, Kept) for answer in answers) == 1
        assert [answer for answer in answers if isinstance(answer, Stale)] == [Stale(2)] * 15
        assert books.read(address).book.next_sequence == 2

    def test_many_writers_without_an_expectation_lose_nothing_and_leave_no_gap(
        self, books, address
    ):
        def write(number):
            events = [event(f"{number}-{index}") for index in range(3)]
            return books.write(Write(address=address, decision=deciding(*events))).decision

        with ThreadPoolExecutor(8) as pool:
            decisions = list(pool.map(write, range(24)))
        book = books.read(address).book
        assert [one.sequence for one in book.events] == list(range(72))
        for decision in decisions:
            first = decision.events[0].sequence
            assert book.events[first : first + 3] == decision.events

    def test_of_many_deliveries_of_one_cause_one_decides(self, books, address):
        def write(number):
            return books.write(
                Write(address=address, decision=deciding(event(str(number)), cause="c"))
            )

        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(write, range(16)))
        assert sum(answer.anew for answer in answers) == 1
        assert len({answer.decision.events[0].id for answer in answers}) == 1
        assert books.read(address).book.next_sequence == 1

    def test_what_nobody_published_is_told_until_it_is_sent(self, books, address):
        first, second = deciding(event("a")), deciding(event("b"))
        for decision in (first, second, deciding()):
            books.write(Write(address=address, decision=decision, unsent=True))
        books.write(Write(address=address, decision=deciding(event("c"))))
        tomorrow = datetime.now(UTC) + timedelta(days=1)

        def told(limit=100_000, before=tomorrow):
            waiting = books.unsent(before, limit)
            return [one.decision.cause for one in waiting if one.address == address]

        assert told() == [first.cause, second.cause]
        (one, _) = [one for one in books.unsent(tomorrow, 100_000) if one.address == address]
        assert one.decision == books.read(address, cause=first.cause).decision
        assert told(before=datetime.now(UTC) - timedelta(days=1)) == []
        books.sent(address, first.cause)
        books.sent(address, first.cause)
        assert told() == [second.cause]
        books.sent(address, second.cause)
        assert told() == []

    @pytest.fixture
    def pruned(self, books):
        """Forgets decisions that others left."""
        while books.prune(datetime.now(UTC) + DAY, limit=500):
            pass

    def test_old_decisions_are_forgotten_and_their_events_stay(
        self, books, address, append, pruned
    ):
        append(event("a"), cause="c")
        before = books.read(address, cause="c")
        assert books.prune(datetime.now(UTC) - DAY, limit=500) == 0
        assert books.read(address, cause="c") == before
        assert books.prune(datetime.now(UTC) + DAY, limit=500) == 1
        assert books.read(address, cause="c") == before._replace(decision=None)
        assert books.prune(datetime.now(UTC) + DAY, limit=500) == 0

    def test_the_oldest_decisions_are_forgotten_first_and_a_few_at_a_time(
        self, books, address, append, pruned
    ):
        for number in range(5):
            append(event(), cause=f"c{number}")
        there = (timezone(timedelta(hours=-9)), timezone(timedelta(hours=9)))
        assert [books.prune(datetime.now(zone) + DAY, limit=2) for zone in there] == [2, 2]
        left = [books.read(address, cause=f"c{number}").decision for number in range(5)]
        assert [one is not None for one in left] == [False] * 4 + [True]

    def test_what_is_unsent_is_never_forgotten(self, books, address, pruned):
        unsent = deciding(event("a"))
        books.write(Write(address=address, decision=unsent, unsent=True))
        assert books.prune(datetime.now(UTC) + DAY, limit=500) == 0
        (one,) = [
            one for one in books.unsent(datetime.now(UTC) + DAY, 100_000) if one.address == address
        ]
        assert one.decision.cause == unsent.cause
        books.sent(address, unsent.cause)
        assert books.prune(datetime.now(UTC) + DAY, limit=500) == 1

    def test_a_cause_that_was_forgotten_is_decided_anew(self, books, address, append, pruned):
        append(event("a"), cause="c", verdict=WriteVerdict.ACCEPTED)
        books.prune(datetime.now(UTC) + DAY, limit=500)
        again = append(cause="c", verdict=WriteVerdict.REJECTED)
        assert again.anew
        assert books.read(address, cause="c").decision.verdict is WriteVerdict.REJECTED
        assert books.read(address).book.next_sequence == 1

    def test_causes_in_any_writing_are_forgotten(self, books, address, append, pruned):
        causes = ["ü\x00\ud800", "x" * 10_000, "'; --", " "]
        for cause in causes:
            append(event(), cause=cause)
        assert books.prune(datetime.now(UTC) + DAY, limit=500) == len(causes)
        assert all(books.read(address, cause=cause).decision is None for cause in causes)

    def test_those_who_prune_at_once_forget_each_decision_once(self, books, append, pruned):
        for number in range(60):
            append(cause=f"c{number}")

        def prune(_number):
            return sum(iter(lambda: books.prune(datetime.now(UTC) + DAY, limit=7), 0))

        with ThreadPoolExecutor(4) as pool:
            assert sum(pool.map(prune, range(4))) == 60

    def test_random_histories_are_those_of_a_list(self, books):
        compare_with_a_list(books)


def compare_with_a_list(books: EventBooks) -> None:
    """Let random causes write to *books*, and hold them against a list."""
    steps = st.tuples(st.integers(0, 3), st.integers(0, 2), st.none() | st.integers(0, 8))

    @given(st.lists(steps))
    @settings(max_examples=25, deadline=None)
    def run(history: list[tuple[int, int, int | None]]) -> None:
        address = Address("player", str(uuid4()))
        kept: list[Event] = []
        decided: dict[str, Decision] = {}
        for number, count, expected in history:
            cause = f"c{number}"
            decision = deciding(*[event(cause) for _ in range(count)], cause=cause)
            answer = books.write(Write(address=address, decision=decision, expected=expected))
            if cause in decided:
                assert answer == Kept(decided[cause], anew=False)
            elif expected not in (None, len(kept)):
                assert answer == Stale(len(kept))
            else:
                places = range(len(kept), len(kept) + count)
                assert answer.anew
                assert [one.sequence for one in answer.decision.events] == list(places)
                decided[cause] = answer.decision
                kept.extend(answer.decision.events)
        assert books.read(address).book.events == tuple(kept)

    run()
