"""A state is the fold of a book (C1)."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from tests.accounts import (
    ADDRESS,
    Account,
    Deposited,
    Funds,
    Withdrawn,
    book_of,
    event,
)
from tests.accounts import merging as accounts

from angzarr.aggregates.aggregate import Aggregate
from angzarr.aggregates.book import Book, Snapshot
from angzarr.aggregates.command import Command, MergeStrategy
from angzarr.aggregates.decorators import applies, handles
from angzarr.errors import (
    BookUnreadable,
    CommandRejectedError,
)
from angzarr.events.event import Event

moves = st.lists(st.tuples(st.sampled_from([Deposited, Withdrawn]), st.integers(0, 10**6)))


def folded(history: list[tuple[type[BaseModel], int]]) -> Funds:
    funds = Funds()
    for kind, cents in history:
        change = cents if kind is Deposited else -cents
        funds.cents += change
        funds.moves.append(change)
    return funds


@given(moves)
def test_a_state_is_the_fold_of_its_events(history):
    book = book_of(*(event(kind(cents=cents)) for kind, cents in history))
    account = Account(book)
    assert account.state == folded(history)
    assert (account.next_sequence, account.address) == (len(history), ADDRESS)


@given(moves, st.data())
def test_a_snapshot_anywhere_gives_the_state_of_the_whole_book(history, data):
    events = [event(kind(cents=cents)) for kind, cents in history]
    place = data.draw(st.integers(0, len(events)))
    kind = accounts(MergeStrategy.STRICT, every=1)
    start = data.draw(st.integers(0, max(place - 1, 0)))
    snapshot = kind(book_of(*events[:start])).snapshot_after(events[start:place])
    assert (snapshot is None) == (place == start)
    whole = book_of(*events)
    written = snapshot and replace(snapshot, state=json.loads(json.dumps(snapshot.state)))
    tail = tuple(whole.events[place:])
    for pages in (whole.events, tail) if snapshot else (whole.events,):
        assert kind(replace(whole, events=pages, snapshot=written)).state == folded(history)


def test_events_that_the_snapshot_covers_are_not_applied_twice():
    snapshot = Snapshot(sequence=1, state={"cents": 70, "moves": [70]})
    book = book_of(event(Deposited(cents=70)), event(Deposited(cents=1)), snapshot=snapshot)
    assert Account(book).state == Funds(71, [70, 1])


def test_events_of_types_that_nobody_applies_change_nothing():
    book = book_of(event(Deposited(cents=7)), Event(id="e", type="account.audited", data=object()))
    account = Account(book)
    assert (account.state, account.next_sequence) == (Funds(7, [7]), 2)


@pytest.mark.parametrize("data", [{"cents": "s3cret"}, {}, None, "s3cret", ["s3cret"]])
def test_an_event_that_does_not_fit_names_its_place_and_no_values(data):
    book = book_of(event(Deposited(cents=7)), Event(id="e", type="Deposited", data=data))
    with pytest.raises(BookUnreadable, match=r"event 1 of account/a-1, a Deposited:") as caught:
        Account(book)
    assert "s3cret" not in f"{caught.value}{caught.value.__cause__}"


def test_a_snapshot_that_does_not_fit_names_its_place_and_no_values():
    snapshot = Snapshot(sequence=1, state={"cents": "s3cret"})
    with pytest.raises(BookUnreadable, match="snapshot at 1 of account/a-1") as caught:
        Account(Book(address=ADDRESS, snapshot=snapshot, next_sequence=1))
    assert "s3cret" not in f"{caught.value}{caught.value.__cause__}"


def test_a_snapshot_of_another_version_is_no_state():
    class Newer(Account):
        state_version = 2

    snapshot = Snapshot(sequence=1, state={"cents": 7, "moves": [7]})
    assert Account.reads(snapshot)
    assert not Newer.reads(snapshot)
    with pytest.raises(
        BookUnreadable, match="snapshot at 1 of account/a-1: the snapshot has version 1"
    ):
        Newer(Book(address=ADDRESS, snapshot=snapshot, next_sequence=1))


def test_an_error_of_an_applying_method_is_no_rejection_of_a_command():
    class Strict(Account):
        def deposited(self, event):
            raise CommandRejectedError("too late: it happened")

    with pytest.raises(BookUnreadable, match="event 0 of account/a-1, a Deposited"):
        Strict(book_of(event(Deposited(cents=7))))


def test_what_a_method_returns_by_mistake_is_no_state():
    class Popping(Account):
        def deposited(self, event):
            self.state.moves.append(event.cents)
            return self.state.moves.pop()

    with pytest.raises(BookUnreadable, match=r"Popping\.deposited returns int, which is no state"):
        Popping(book_of(event(Deposited(cents=7))))


def test_each_aggregate_has_a_state_of_its_own():
    first, second = Account(book_of()), Account(book_of())
    first.apply(event(Deposited(cents=7)))
    assert second.state == Funds()


@dataclass
class Basket:
    lines: list[Any] = field(default_factory=list)


class Bundled(BaseModel):
    lines: list[Any]


class Shop(Aggregate[Basket]):
    domain = "shop"
    snapshot_every = 1

    @handles("shop.bundle")
    def bundle(self, data):
        data[0]["n"] += 1
        return [Bundled(lines=data), Bundled(lines=data)]

    @applies("Bundled")
    def bundled(self, data):
        if self.state.lines:
            self.state.lines.extend(data["lines"])
            self.state.lines[0]["n"] += 1
        else:
            self.state.lines = data["lines"]


def test_applying_and_deciding_change_no_data():
    bundled = Event(id="e", type="Bundled", data={"lines": [{"n": 1}]})
    book = book_of(bundled, bundled)
    before = copy.deepcopy(book)
    snapshot = Shop(book_of()).snapshot_after(book.events)
    assert snapshot.state == {"lines": [{"n": 2}, {"n": 1}]}
    assert Shop(book).state == Shop(book).state == Basket([{"n": 2}, {"n": 1}])
    assert book == before

    kept = copy.deepcopy(snapshot)
    read = replace(book_of(), snapshot=snapshot)
    Shop(read).apply(bundled)
    assert snapshot == kept

    asked = Command(event=Event(id="c", type="shop.bundle", data=[{"n": 1}]))
    unchanged = copy.deepcopy(asked)
    Shop(book_of()).decide(asked)
    assert asked == unchanged
