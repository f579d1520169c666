"""How ordered handlers do is counted beside the pages: seldom, and by one thread at a time."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from angzarr.aggregates.book import Address
from angzarr.dashboard.ordered_handlers import AWAY, LAG_FRESH, LANES_FRESH, Surveyor
from angzarr.dashboard.problem import Problem
from angzarr.errors import ConfigurationError, StoreUnavailable
from angzarr.fleet import Member
from angzarr.ordering.lane import Lane
from contracts.event_store import event, fill
from contracts.waiting_events import early_of, letter_of, step_of
from dashboard_world import SALES
from polling import wait_until

O_1 = SALES.lane(Address("order", "o-1"))


@pytest.fixture
def surveyor(world):
    return Surveyor(world.ordered, world.clock, lambda count: count())


def only(survey):
    (seen,) = survey.seen
    return seen


def test_what_the_app_registers_is_counted(world, surveyor):
    fill(world.event_stores.books, O_1.address, *(event("OrderPlaced") for _ in range(4)))
    world.lanes.move(step_of(O_1, 0))
    world.lanes.note(letter_of(O_1, 1))
    world.lanes.park(early_of(O_1, 2), 9)
    survey = surveyor.look()
    seen = only(survey)
    assert (survey.at, survey.problem) == (world.clock.now(), None)
    assert (seen.row.one, seen.is_registered) == (SALES, True)
    assert (seen.row.summary.parked, seen.row.summary.blocked) == (1, 1)
    assert seen.row.checkpoint.events_processed == 1
    assert (seen.row.lag.events_behind, seen.row.lag.without_books) == (3, {"stock"})


def test_what_is_not_registered_is_known_by_its_lanes(world, surveyor):
    lane = Lane("shop.ship", Address("order", "o-1"), 1)
    world.lanes.park(early_of(lane, 3), 9)
    world.lanes.move(step_of(Lane("projection.old", Address("bill", "b")), 0))
    old, sales, ship = surveyor.look().seen
    assert [one.is_registered for one in (old, sales, ship)] == [False, True, False]
    assert (old.row.one.name, old.row.one.kind) == ("old", "projection")
    order = ship.row.one.order
    assert (ship.row.one.kind, order.domains, order.first) == ("handler", {"order"}, 1)
    assert order.types == frozenset()


def test_workers_are_counted_where_somebody_can_tell(world, surveyor):
    assert only(surveyor.look()).workers == 0
    world.members = [
        Member(owner=f"w{n}", host="h", pid=n, handlers=names, started_at=datetime.now(UTC))
        for n, names in enumerate([("projection.sales",), ("projection.sales", "x"), ("x",)])
    ]
    world.clock.sleep(LANES_FRESH)
    assert only(surveyor.look()).workers == 2
    world.fleet_away = StoreUnavailable("away")
    world.clock.sleep(LANES_FRESH)
    assert only(surveyor.look()).workers is None


def test_it_is_counted_no_oftener_than_it_says(world, surveyor):
    surveyor.look()
    world.lanes.move(step_of(O_1, 0))
    fill(world.event_stores.books, O_1.address, event(), event())
    assert only(surveyor.look()).row.summary.lanes == 0
    world.clock.sleep(LANES_FRESH)
    seen = only(surveyor.look())
    assert (seen.row.summary.lanes, seen.row.lag.events_behind) == (1, 0), "the lag is older"
    world.clock.sleep(LAG_FRESH - LANES_FRESH)
    assert only(surveyor.look()).row.lag.events_behind == 1


def test_what_takes_long_is_counted_more_seldom(world, surveyor, monkeypatch):
    heads = []

    def slow(_store, *_asked):
        heads.append(world.clock.now())
        world.clock.sleep(timedelta(minutes=1))
        return []

    monkeypatch.setattr("angzarr.adapters.memory.event_store.MemoryEventStore.heads", slow)
    surveyor.look()
    for _ in range(8):
        world.clock.sleep(timedelta(minutes=1))
        surveyor.look()
    assert len(heads) == 1
    world.clock.sleep(timedelta(minutes=1))
    surveyor.look()
    assert len(heads) == 2


def test_a_database_that_is_away_leaves_what_was_known_and_is_not_asked_at_once(world, surveyor):
    before = surveyor.look()
    world.lanes_away = StoreUnavailable("secret")
    world.clock.sleep(LANES_FRESH)
    survey = surveyor.look()
    assert survey.seen == before.seen
    assert survey.problem.detail.startswith("the database of ordered handlers is away")
    world.lanes_away = None
    assert surveyor.look().problem is not None
    world.clock.sleep(AWAY)
    assert surveyor.look().problem is None


@pytest.mark.parametrize(
    ("error", "status", "says"),
    [
        (StoreUnavailable("secret"), 503, "is away"),
        (ConfigurationError("set ordering.url"), 409, "set ordering.url"),
        (RuntimeError("secret"), 500, "its log says more"),
    ],
)
def test_what_went_wrong_is_one_sentence(world, surveyor, error, status, says):
    world.lanes_away = error
    with pytest.raises(Problem) as refused:
        surveyor.look().find("sales")
    assert refused.value.status == status
    assert says in refused.value.detail
    assert "secret" not in refused.value.detail


def test_books_that_are_away_leave_the_lanes_known(world, surveyor):
    world.books_away = StoreUnavailable("away")
    survey = surveyor.look()
    assert only(survey).row.lag is None
    assert survey.problem.detail.startswith("the database of event books is away")


def test_it_is_found_by_name_and_by_task(surveyor):
    survey = surveyor.look()
    assert survey.find("sales") is survey.find("projection.sales")
    with pytest.raises(Problem) as refused:
        survey.find("nobody")
    assert refused.value.status == 404


def test_one_thread_counts_and_nobody_waits_for_it_long(world, monkeypatch):
    begun, go_on = threading.Event(), threading.Event()

    def registered():
        begun.set()
        assert go_on.wait(60)
        return [SALES]

    monkeypatch.setattr("angzarr.dashboard.ordered_handlers.WHOLE", 0.01)
    surveyor = Surveyor(replace(world.ordered, registered=registered), world.clock)
    assert surveyor.look().at is None
    assert begun.wait(60)
    begun.clear()
    with pytest.raises(Problem, match="for the first time"):
        surveyor.find("sales")
    assert not begun.is_set(), "a second thread would have asked"
    go_on.set()
    wait_until(lambda: surveyor.look().seen)
    assert only(surveyor.look()).row.one == SALES
    surveyor.close()
    world.clock.sleep(LANES_FRESH)
    begun.clear()
    surveyor.look()
    assert not begun.is_set(), "it was closed"
