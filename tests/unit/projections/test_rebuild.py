"""The course of a rebuild: scan, catch up, switch over; stopped, throttled, failing, resumed."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from angzarr.adapters.memory.event_store import MemoryEventBooks, MemoryEventStore
from angzarr.aggregates.book import Address, Decision, Write
from angzarr.errors import RebuildError, Skip, StoreUnavailable
from angzarr.events.event import Event
from angzarr.projections.rebuild import Rebuild, RebuildStanding, RebuildStopped
from angzarr.projections.shadow_table import Ahead, Behind, Busy, Compared, Plan, TransactionEnded
from green_in_memory import MemoryGreen
from hand_clock import START, HandClock

PLAN = Plan(projection="p", handler="projection.p", domains=("d",), tables=("t",))


class World:
    """Event books in memory, and a green space for them."""

    def __init__(self) -> None:
        self.books = MemoryEventBooks()
        self.store = MemoryEventStore(self.books)
        self.clock = HandClock()
        self.green = MemoryGreen()

    def append(self, root: str, number: int = 1, data: object = None, domain: str = "d") -> None:
        events = tuple(Event(id=str(uuid4()), type="E", data=data) for _ in range(number))
        decision = Decision(cause=str(uuid4()), events=events)
        self.books.write(Write(address=Address(domain, root), decision=decision))

    def rebuild(self, **options) -> Rebuild:
        return Rebuild(plan=PLAN, store=self.store, green=self.green, clock=self.clock, **options)

    def whole(self) -> dict[Address, list[int]]:
        """Return what a projection holds that has seen everything once."""
        heads = self.store.heads(["d"], None, 1000)
        return {address: list(range(end)) for address, end in heads}


@pytest.fixture
def world():
    return World()


def test_every_event_is_applied_once_and_in_order(world):
    for root in "abc":
        world.append(root, 5)
    world.append("a", 5, domain="another")
    assert world.rebuild(batch=4).run().events == 15
    assert world.green.held == world.whole()
    assert world.green.over


def test_events_that_come_meanwhile_are_caught_up_with(world):
    world.append("m", 3)
    coming = iter(["m", "a", "z", "b"] * 3)

    def work(_event):
        if root := next(coming, None):
            world.append(root)

    world.green.work = work
    world.rebuild(batch=2, little=0).run()
    assert world.green.held == world.whole()


def test_what_comes_until_nobody_writes_is_brought_up_before_the_switch(world):
    world.append("a", 3)
    world.green.live = [Behind(Address("d", "a"), 3, 5), Behind(Address("d", "new"), 0, 1)]
    told = []

    def tell(standing):
        if standing.done == 3 and not told:
            told.append(standing)

    green, before = world.green, world.green.switch_over

    def switch_over(fill, *, force):
        world.append("a", 2)
        world.append("new")
        return before(fill, force=force)

    green.switch_over = switch_over
    assert world.rebuild(tell=tell).run().events == 6
    assert green.held == world.whole()


def test_only_as_many_events_are_brought_up_as_the_live_lane_is_past(world):
    world.append("a", 5)
    world.append("b", 5)
    rebuild = world.rebuild()
    rebuild._fill([Behind(Address("d", "a"), 0, 2)])
    assert world.green.held == {Address("d", "a"): [0, 1]}


@settings(max_examples=150)
@given(
    books=st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 7), min_size=1),
    live=st.lists(st.sampled_from("abcdefgh"), max_size=5),
    batch=st.integers(1, 9),
    bad=st.sets(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 8)), max_size=3),
    skipped=st.sets(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 8)), max_size=3),
    stops=st.lists(st.integers(1, 8), max_size=4),
)
def test_whatever_happens_each_aggregate_is_whole_or_stays_at_its_failure(
    books, live, batch, bad, skipped, stops
):
    world = World()
    for root, number in books.items():
        world.append(root, number)
    coming = iter(live)

    def work(event):
        if (event.root, event.sequence) in bad:
            raise ValueError
        if (event.root, event.sequence) in skipped:
            raise Skip("no")
        if root := next(coming, None):
            world.append(root)

    world.green.work = work
    for limit in stops:
        told = []
        world.rebuild(
            batch=batch,
            little=0,
            keep_going=True,
            tell=told.append,
            stop=lambda n=limit, t=told: len(t) > n,
        ).run()
        if world.green.over:
            break
    else:
        world.rebuild(batch=batch, little=0, keep_going=True).run()
    for address, whole in world.whole().items():
        failed = [n for n in whole if (address.root, n) in bad]
        seen = whole[: failed[0]] if failed else whole
        kept = [n for n in seen if (address.root, n) not in skipped]
        assert world.green.held.get(address, []) == kept
        if failed:
            assert world.green.failures[address].sequence == failed[0]
            assert world.green.following.get(address, 0) == failed[0]


def test_a_failing_event_is_named_and_what_is_before_it_is_kept(world):
    world.append("a", 10)

    def work(event):
        if event.sequence == 7:
            raise ValueError("seven\nlines")

    world.green.work = work
    with pytest.raises(RebuildError, match=r"sequence 7 of d/a: ValueError: seven; everything"):
        world.rebuild().run()
    assert world.green.held[Address("d", "a")] == list(range(7))
    world.green.work = lambda _event: None
    world.rebuild().run()
    assert world.green.held == world.whole()


def test_a_transaction_that_was_ended_is_told_even_where_that_cannot_be_noted(world, monkeypatch):
    world.append("a")

    def ending(*_):
        raise TransactionEnded("p ended it")

    def away():
        raise StoreUnavailable("the database is away")

    monkeypatch.setattr(world.green, "apply", ending)
    monkeypatch.setattr(world.green, "spoil", away)
    with pytest.raises(TransactionEnded, match=r"p ended it.*\(--abandon\): the database is away"):
        world.rebuild().run()


def test_no_more_events_a_second_than_allowed(world):
    world.append("a", 100)
    world.rebuild(throttle=10).run()
    assert world.clock.now() - START >= timedelta(seconds=9)
    assert max(world.green.batches) == 10


def test_less_than_an_event_a_second_is_possible(world):
    world.append("a", 3)
    world.rebuild(throttle=0.1).run()
    assert world.clock.now() - START >= timedelta(seconds=20)
    assert max(world.green.batches) == 1


def test_what_was_slow_is_not_made_up_for(world):
    world.append("a", 30)
    world.green.work = lambda event: event.sequence or world.clock.sleep(timedelta(seconds=60))
    world.rebuild(throttle=10).run()
    assert world.clock.now() - START >= timedelta(seconds=62)


def test_a_stop_keeps_what_is_done(world):
    world.append("a", 10)
    told = []
    ending = world.rebuild(batch=2, tell=told.append, stop=lambda: len(told) > 2).run()
    assert ending == RebuildStopped(4)
    assert not world.green.over


def test_how_far_it_is_is_told_with_what_there_is_in_all(world):
    world.append("a", 4)
    told = []
    world.rebuild(batch=2, tell=told.append).run()
    assert told[:3] == [
        RebuildStanding(0, 4, 0),
        RebuildStanding(2, 4, 0),
        RebuildStanding(4, 4, 0),
    ]


def test_a_switch_that_is_kept_out_is_tried_again_with_what_came_meanwhile(world):
    world.append("a", 1)
    world.green.answers = [Busy("locked")] * 3
    world.rebuild().run()
    assert world.green.over
    assert world.clock.now() - START == timedelta(seconds=3)


def test_what_was_undone_with_a_switch_is_not_remembered(world):
    world.append("a", 3)
    bad = {3}

    def work(event):
        if event.sequence in bad:
            raise ValueError

    world.green.work = work
    before, undone = world.green.switch_over, []

    def switch_over(fill, *, force):
        """Bring up what came, find that it fails, and lose all that to somebody's lock."""
        if undone:
            return before(fill, force=force)
        kept = world.green.following.copy(), world.green.events
        world.append("a", 2)
        fill([Behind(Address("d", "a"), 3, 5)])
        undone.append(world.green.failures.copy())
        world.green.failures.clear()
        world.green.following, world.green.events = kept
        bad.clear()
        return Busy("locked")

    world.green.switch_over = switch_over
    told = []
    done = world.rebuild(keep_going=True, little=0, tell=told.append).run()
    assert undone[0]
    assert (done.events, done.failures) == (5, ())
    assert told[-1] == RebuildStanding(5, 5, 0)
    assert world.green.held == world.whole()


def test_a_switch_that_is_always_kept_out_is_given_up(world):
    world.append("a", 1)
    world.green.answers = [Busy("somebody's lock")] * 100
    with pytest.raises(RebuildError, match=r"somebody's lock.*goes on from here"):
        world.rebuild().run()
    assert not world.green.over


def test_a_verification_waits_for_the_live_read_model(world):
    world.append("a", 1)
    world.green.answers = [Ahead(5), Busy("locked"), Ahead(1)]
    assert world.rebuild().verify() == Compared({}, 1)


def test_a_verification_is_given_up_where_the_live_read_model_stays_behind(world):
    world.append("a", 1)
    world.green.answers = [Ahead(5)] * 100
    with pytest.raises(RebuildError, match="5 events behind"):
        world.rebuild().verify()


def test_events_that_come_as_fast_as_they_are_applied_are_told(world):
    world.append("a", 3)
    world.green.work = lambda _event: world.append("a")
    with pytest.raises(RebuildError, match="come as fast as they are rebuilt"):
        world.rebuild(little=0).run()
