"""Claims end in batches, each message hears of its own, none is lost while the store is away."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from types import SimpleNamespace

import pytest

from angzarr.adapters.celery.claim_ender import (
    GATHERING,
    MOST_A_CALL,
    OVERDUE,
    ClaimEnder,
    EndingClaim,
)
from angzarr.adapters.memory.idempotency import MemoryIdempotencyStore, MemoryOwnerLeases
from angzarr.errors import StoreUnavailable
from angzarr.resilience.idempotency import Claim, ClaimEnd, Complete
from angzarr.runtime.group_commit import GROUP_COMMIT
from polling import wait_until


class Store(MemoryIdempotencyStore):
    """Counts calls, and does in one what a test says."""

    def __init__(self):
        super().__init__(MemoryOwnerLeases())
        self.calls = []
        self.before = lambda _ends: None

    def settle_all(self, ends):
        self.calls.append(len(ends))
        self.before(ends)
        return super().settle_all(ends)


@pytest.fixture
def store():
    return Store()


@pytest.fixture
def ender(store):
    made = ClaimEnder(store)
    made.start()
    yield made
    store.before = lambda _ends: None
    made.finish(5)


@pytest.fixture
def heard():
    return []


@pytest.fixture
def ending(store, heard):
    """Claim a key and give what ends it."""

    def ending(key, token="mine"):
        store.claim([Claim(key=key, token="mine", owner="me")])
        end = ClaimEnd(key, token, Complete(result="1"))
        return EndingClaim(
            end,
            lambda ours: heard.append((key, ours)),
            lambda error: heard.append((key, str(error))),
        )

    return ending


def test_what_is_told_of_a_claim_is_written_before_the_claim_ends(store, ender, ending, heard):
    written, seen = [], []
    store.before = lambda _ends: seen.append(list(written))
    GROUP_COMMIT.add(written.extend, ["a"])
    assert written == []
    ender.end(ending("a"))
    wait_until(lambda: heard)
    assert seen == [["a"]]


def test_what_cuts_a_write_short_loses_no_claim(ender, ending, heard):
    cuts, written = iter([SystemExit()]), []

    def to(items):
        for cut in cuts:
            raise cut
        written.extend(items)

    GROUP_COMMIT.add(to, ["a"])
    ender.end(ending("a"))
    wait_until(lambda: heard == [("a", True)])
    assert written == ["a"]


def test_a_worker_that_has_stopped_lets_nothing_wait(ender):
    written = []
    GROUP_COMMIT.add(written.extend, ["a"])
    ender.finish(5)
    assert written == ["a"]
    GROUP_COMMIT.add(written.extend, ["b"])
    assert written == ["a", "b"]


def test_what_comes_while_a_call_is_under_way_is_ended_in_the_next(store, ender, ending, heard):
    under_way, go_on = threading.Event(), threading.Event()

    def hold(_ends):
        under_way.set()
        go_on.wait(60)

    store.before = hold
    ender.end(ending("first"))
    assert under_way.wait(60)
    ender.end(*(ending(str(n)) for n in range(MOST_A_CALL + 1)))
    assert not heard, "nothing is acknowledged before the store has confirmed it"
    go_on.set()
    assert ender.wait(60)
    assert store.calls == [1, MOST_A_CALL, 1]
    assert heard == [("first", True), *((str(n), True) for n in range(MOST_A_CALL + 1))]


def test_a_claim_that_another_took_over_is_told_to_its_message_alone(ender, ending, heard):
    ender.end(ending("a"), ending("b", token="another's"), ending("c"))
    assert ender.wait(60)
    assert heard == [("a", True), ("b", False), ("c", True)]


def test_a_store_that_is_away_is_asked_again_until_it_is_back(store, ender, ending, heard, caplog):
    away = iter([StoreUnavailable("away"), StoreUnavailable("away")])

    def fail(_ends):
        for error in away:
            raise error

    store.before = fail
    ender.end(ending("a"), ending("b"))
    wait_until(lambda: len(heard) == 2)
    assert heard == [("a", True), ("b", True)]
    assert caplog.text.count("could not be ended") == 1


def test_a_claim_that_cannot_be_ended_keeps_its_message_alone(store, ender, ending, heard, caplog):
    def refuse(ends):
        if any(end.key == "odd" for end in ends):
            msg = "a record of another kind"
            raise TypeError(msg)

    store.before = refuse
    ender.end(ending("a"), ending("odd"), ending("b"))
    assert ender.wait(60)
    assert heard == [("a", True), ("odd", "a record of another kind"), ("b", True)]
    assert "claim_not_ended" in caplog.text


def test_who_fails_to_hear_keeps_the_others_from_nothing(ender, ending, heard, caplog):
    def fail(_ours):
        msg = "the loop is gone"
        raise RuntimeError(msg)

    ender.end(ending("a")._replace(then=fail), ending("b"))
    assert ender.wait(60)
    assert heard == [("b", True)]
    assert "the loop is gone" in caplog.text


def test_a_worker_that_stops_waits_for_a_store_that_is_away_no_longer_than_it_may(
    store, ender, ending, heard
):
    def fail(_ends):
        msg = "away"
        raise StoreUnavailable(msg)

    store.before = fail
    ender.end(ending("a"))
    assert not ender.wait(0.05)
    ender.finish(0.05)
    assert not heard, "its message is not acknowledged, and comes again"
    assert not [one for one in threading.enumerate() if one.name == "angzarr-claims"]


def test_what_ends_after_the_thread_is_ended_at_once(ender, ending, heard):
    ender.finish(5)
    ender.end(ending("late"))
    assert heard == [("late", True)]


def test_want_of_memory_or_worse_loses_no_claim(store, ender, ending, heard):
    faults = iter([MemoryError(), SystemExit()])

    def fail(_ends):
        for error in faults:
            raise error

    store.before = fail
    ender.end(ending("a"), ending("b"))
    wait_until(lambda: len(heard) == 2)
    assert heard == [("a", True), ("b", True)]


@pytest.fixture
def looped(store):
    """An ender whose loop takes turns, by a clock that stands still."""
    clock = SimpleNamespace(now=100.0)
    made = ClaimEnder(store, monotonic=lambda: clock.now)
    made.start()
    made.turn(idle=True)
    yield made, clock
    store.before = lambda _ends: None
    made.finish(5)


def test_a_loop_ends_together_what_came_within_some_milliseconds(looped, store, ending, heard):
    ender, clock = looped
    for n in range(3):
        ender.end(ending(str(n)))
        assert not ender.turn(idle=False)
    assert store.calls == []
    clock.now += 2 * GATHERING
    assert ender.turn(idle=False)
    assert store.calls == [3]
    assert heard == [("0", True), ("1", True), ("2", True)]
    assert not ender.turn(idle=True), "nothing is left"


def test_what_is_told_of_a_claim_is_written_before_a_turn_ends_it(store, looped, ending):
    ender, _ = looped
    written, seen = [], []
    store.before = lambda _ends: seen.append(list(written))
    GROUP_COMMIT.add(written.extend, ["a"])
    ender.end(ending("a"))
    ender.turn(idle=True)
    assert seen == [["a"]]


def test_nothing_waits_for_company_while_the_loop_is_idle_or_there_is_enough(looped, store, ending):
    ender, _ = looped
    ender.end(ending("a"))
    assert ender.turn(idle=True)
    ender.end(*(ending(str(n)) for n in range(MOST_A_CALL)))
    assert ender.turn(idle=False)
    assert store.calls == [1, MOST_A_CALL]


def test_what_a_busy_loop_leaves_the_thread_takes(looped, store, ending, heard):
    """A handler may keep the loop of a solo worker for hours."""
    ender, clock = looped
    ender.end(ending("a"))
    clock.now += 2 * OVERDUE
    wait_until(lambda: heard == [("a", True)])
    assert store.calls == [1]


class LookedOnDemand(ClaimEnder):
    """An ender whose thread looks whenever the test says so."""

    def __init__(self, store, clock):
        super().__init__(store, monotonic=lambda: clock.now)
        self.looks, self.looked = SimpleQueue(), SimpleQueue()
        self.start()
        self.looked.get(timeout=60)

    def _next(self):
        self.looked.put(None)
        self.looks.get()

    def look(self):
        self.looks.put(None)
        self.looked.get(timeout=60)

    def stop(self):
        self._stopped.set()
        self.looks.put(None)
        self._thread.join(60)


def test_the_thread_takes_nothing_from_a_loop_that_took_a_turn_since_it_looked(
    store, ending, heard
):
    """It may only wait for a processor, and two of them would be slower."""
    clock = SimpleNamespace(now=100.0)
    ender = LookedOnDemand(store, clock)
    try:
        for _ in range(3):
            ender.turn(idle=False)
            ender.end(ending("a"))
            clock.now += 2 * OVERDUE
            ender.look()
            assert not store.calls
            assert ender.turn(idle=False)
            store.calls.clear()
        ender.end(ending("b"))
        clock.now += 2 * OVERDUE
        ender.look()
        ender.look()
        assert store.calls == [1]
    finally:
        ender.stop()


def test_a_loop_leaves_a_store_that_is_away_to_the_thread(looped, store, ending, heard):
    ender, _ = looped
    asked_by = []

    def fail(_ends):
        asked_by.append(threading.current_thread().name)
        if len(asked_by) < 3:
            msg = "away"
            raise StoreUnavailable(msg)

    store.before = fail
    ender.end(ending("a"), ending("b"))
    assert not ender.turn(idle=True)
    while not heard:
        ender.turn(idle=True)
    wait_until(lambda: len(heard) == 2)
    assert asked_by == [threading.main_thread().name, "angzarr-claims", "angzarr-claims"]
    assert heard == [("a", True), ("b", True)]
