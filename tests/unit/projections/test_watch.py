"""Metrics of ordered handlers are sampled, and what costs much is counted seldom."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.hand_clock import HandClock

from angzarr.adapters.memory.event_store import MemoryEventBooks, MemoryEventStore
from angzarr.adapters.memory.lanes import MemoryLanes
from angzarr.aggregates.book import Address, Decision, Write
from angzarr.errors import StoreUnavailable
from angzarr.events.event import Event
from angzarr.ordering.lane import Order
from angzarr.projections.checkpoint import LagWatch

NAME = "projection.totals"
ORDERS = {NAME: Order(domains=frozenset({"order"}), types=frozenset({"Placed"}))}


class Slow(MemoryEventStore):
    """Takes ten seconds for a question, or is away."""

    clock: HandClock
    away = False

    def heads(self, *asked):
        self.clock.sleep(timedelta(seconds=10))
        if self.away:
            raise StoreUnavailable("away")
        return super().heads(*asked)


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture
def store(clock):
    books = MemoryEventBooks()
    events = tuple(Event(id=f"e{number}", type="Placed", data={}) for number in range(3))
    books.write(Write(address=Address("order", "o-1"), decision=Decision(cause="c", events=events)))
    store = Slow(books)
    store.clock = clock
    return store


@pytest.fixture
def shown():
    return []


@pytest.fixture
def look(clock, store, shown):
    lanes = MemoryLanes()
    watch = LagWatch(orders=ORDERS, lanes=lanes, store=store, show=shown.append, clock=clock)
    return lambda: watch.counted(lanes.summaries([NAME]), [])


def test_what_is_behind_is_counted_at_first_and_then_after_a_rest(look, shown, clock):
    look()
    assert [one.events_behind for (one,) in shown] == [None, 3]
    began = clock.now()
    look()
    assert clock.now() == began, "it asked no book"
    assert shown[-1][0].events_behind == 3
    clock.sleep(timedelta(minutes=10))
    look()
    assert clock.now() > began + timedelta(minutes=10)


def test_books_that_are_away_leave_what_is_known_shown(look, shown, clock, store):
    look()
    clock.sleep(timedelta(hours=1))
    store.away = True
    with pytest.raises(StoreUnavailable):
        look()
    assert shown[-1][0].events_behind == 3
