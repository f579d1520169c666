"""Snapshots: when they are made, and that they give the same state back (C1)."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr
from tests.accounts import (
    ADDRESS,
    Account,
    Deposited,
    Funds,
    book_of,
    event,
)
from tests.accounts import merging as accounts

from angzarr.aggregates.aggregate import Aggregate, is_one
from angzarr.aggregates.book import Book, Retention
from angzarr.aggregates.command import MergeStrategy
from angzarr.aggregates.decorators import applies
from angzarr.events.event import Event


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
