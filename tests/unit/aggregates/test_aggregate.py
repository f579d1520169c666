"""A state is the fold of a book; snapshots give it back; which classes can work (C1)."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from typing import Any, Generic, TypedDict, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr
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

from angzarr.aggregates.aggregate import Aggregate, is_one
from angzarr.aggregates.book import Book, Retention, Snapshot
from angzarr.aggregates.command import Command, MergeStrategy
from angzarr.aggregates.decorators import applies, handles
from angzarr.errors import (
    BookUnreadable,
    CommandRejectedError,
    ConfigurationError,
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


def with_state(state: Any) -> type[Aggregate[Any]]:
    class Holding(Aggregate[state]): ...

    return Holding


def test_an_aggregate_without_a_state_is_refused():
    class Stateless(Aggregate):
        domain = "account"

    with pytest.raises(ConfigurationError, match=r"class Stateless\(Aggregate\[YourState\]\)"):
        Stateless.check()


@dataclass
class Needy:
    cents: int


class NeedyModel(BaseModel):
    cents: int


@pytest.mark.parametrize("state", [Needy, NeedyModel])
def test_a_state_without_defaults_is_refused(state):
    with pytest.raises(ConfigurationError, match=f"give the fields of {state.__name__} defaults"):
        with_state(state).check()


class Model(BaseModel):
    cents: int = 0


class Opaque:
    """Nothing that pydantic reads and writes."""


def test_a_state_that_cannot_be_written_is_refused():
    with pytest.raises(ConfigurationError, match="Opaque"):
        with_state(Opaque).check()


def test_a_snapshot_every_so_many_less_than_none_is_refused():
    class Backwards(Account):
        snapshot_every = -1

    with pytest.raises(ConfigurationError, match="snapshot_every"):
        Backwards.check()


T = TypeVar("T")


class Tagged(Generic[T]):
    """Has a type of its own that says nothing about a state."""


class Left(Tagged[int], Aggregate[Funds]): ...


class Right(Aggregate[Funds], Tagged[int]): ...


class Base(Aggregate[T]): ...


class Through(Base[Funds]): ...


class Again(Through): ...


@pytest.mark.parametrize("kind", [Left, Right, Through, Again])
def test_the_state_is_what_the_aggregate_names(kind):
    kind.check()
    assert kind.state_type is Funds


@pytest.mark.parametrize("state", [Funds, Model, dict, int, dict[str, int]])
def test_whatever_pydantic_makes_without_arguments_is_a_state(state):
    kind = with_state(state)
    kind.check()
    assert kind(book_of()).state == state()


class Seats(TypedDict, total=False):
    taken: list[int]


@pytest.mark.parametrize(
    ("kind", "state"),
    [
        (Funds, Funds()),
        (int, True),
        (float, 5),
        (Seats, {}),
        (dict[str, int], {}),
        (int | str, "x"),
    ],
)
def test_what_is_of_the_type_is_a_state(kind, state):
    assert is_one(kind, state)


@pytest.mark.parametrize(
    ("kind", "state"), [(Funds, 5), (Funds, Funds), (int, "5"), (float, "5"), (dict, [])]
)
def test_what_is_of_another_type_is_no_state(kind, state):
    assert not is_one(kind, state)


class Row(BaseModel):
    model_config = ConfigDict(strict=True)

    day: date = date(2026, 1, 1)
    total: Decimal = Decimal("0.10")
    seats: set[int] = Field(default_factory=set)
    by_number: dict[int, tuple[str, ...]] = Field(default_factory=dict)


class Rows(Aggregate[Row]):
    snapshot_every = 1

    @applies("seated")
    def seated(self, data):
        self.state.seats.add(data)
        self.state.by_number[data] = ("ü", "\x00")


def test_a_strict_state_reads_its_snapshot():
    seated = Event(id="e", type="seated", data=7)
    rows = Rows(book_of())
    snapshot = rows.snapshot_after([seated])
    written = replace(snapshot, state=json.loads(json.dumps(snapshot.state)))
    assert Rows.reads(written)
    read = Rows(Book(address=ADDRESS, snapshot=written, next_sequence=1))
    assert read.state == Rows(book_of(seated)).state


class Hidden(BaseModel):
    shown: int = 0
    secret: int = Field(default=0, exclude=True)
    _count: int = PrivateAttr(default=0)


class Loose(Aggregate[dict]):
    snapshot_every = 1

    @applies("counted")
    def counted(self, data):
        self.state[len(self.state)] = data


class Forgetful(Aggregate[Hidden]):
    snapshot_every = 1

    @applies("counted")
    def counted(self, data):
        self.state.secret += 1


class Raw(Aggregate[dict]):
    snapshot_every = 1

    @applies("counted")
    def counted(self, data):
        self.state["raw"] = b"\xff"


@pytest.mark.parametrize("kind", [Loose, Forgetful, Raw])
def test_a_state_that_its_snapshot_would_not_give_back_has_none(kind):
    counted = Event(id="e", type="counted", data=1)
    assert kind(book_of()).snapshot_after([counted]) is None


@given(st.integers(1, 5), st.integers(0, 12), st.integers(0, 12))
def test_a_snapshot_is_due_whenever_its_number_of_events_is_passed(every, before, more):
    kind = accounts(MergeStrategy.STRICT, every=every)
    events = [event(Deposited(cents=1))] * (before + more)
    snapshot = kind(book_of(*events[:before])).snapshot_after(events[before:])
    due = any(place % every == 0 for place in range(before + 1, before + more + 1))
    assert (snapshot is not None) == due
    if snapshot:
        assert snapshot.sequence == before + more


def test_no_snapshot_is_made_unless_asked_for():
    events = [event(Deposited(cents=1))] * 100
    assert Account(book_of()).snapshot_after(events) is None


def test_a_snapshot_says_its_version_and_how_long_it_stays():
    class Kept(accounts(MergeStrategy.STRICT, every=1)):
        state_version = 3
        snapshot_retention = Retention.PERSIST

    snapshot = Kept(book_of()).snapshot_after([event(Deposited(cents=1))])
    assert (snapshot.version, snapshot.retention) == (3, Retention.PERSIST)
