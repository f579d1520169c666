from __future__ import annotations

from datetime import timedelta

import pytest

from angzarr.adapters.memory.payload_holders import MemoryPayloadHolders
from angzarr.errors import PayloadStoreUnavailable
from angzarr.payloads.collector import (
    BATCH,
    CollectionTerms,
    PayloadCollector,
    PayloadState,
    unregistered,
)
from angzarr.payloads.holders import PayloadHold, holding
from angzarr.testing import FakeClock
from memory_payloads import MemoryPayloadStore

GRACE = timedelta(days=2)
DAY = timedelta(days=1)


class World:
    def __init__(self):
        self.clock = FakeClock()
        self.holders = MemoryPayloadHolders(self.clock)
        self.store = MemoryPayloadStore(self.clock)

    def put(self, body, holder="me"):
        return self.store.put(body, holding(self.holders, holder)).uri

    def free(self, body):
        uri = self.put(body)
        self.holders.release([PayloadHold(uri, "me")])
        return uri

    def collector(self, keep=None, store=None):
        terms = CollectionTerms(grace=GRACE, keep=keep)
        return PayloadCollector(register=self.holders, store=store or self.store, terms=terms)


@pytest.fixture
def world():
    return World()


def test_what_nothing_has_held_for_the_grace_period_is_deleted_and_nothing_else(world):
    world.free(b"free")
    held, plain = world.put(b"held"), world.store.put(b"not registered").uri
    world.clock.advance(GRACE)
    fresh = world.free(b"fresh")
    collector = world.collector()
    assert [one.uri for one in collector.due()] == [
        one.uri for one in world.holders.find(PayloadState.FREE, GRACE, limit=9)
    ]
    assert collector.collect() == 1
    assert {one.uri for one in world.store.find_all()} == {held, plain, fresh}
    assert (collector.account.bodies, collector.account.bytes) == (1, 4)
    assert world.collector().collect() == 0


def test_what_was_held_too_long_goes_only_by_explicit_choice(world):
    world.put(b"held")
    world.clock.advance(365 * DAY)
    assert world.collector().collect() == 0
    collector = world.collector(keep=365 * DAY)
    assert collector.collect() == 1
    assert collector.account.held_too_long == 1


def test_many_are_deleted_in_batches_up_to_a_limit(world):
    for number in range(BATCH + 20):
        world.free(b"%d" % number)
    world.clock.advance(GRACE)
    collector = world.collector()
    assert collector.collect(limit=BATCH + 5) == BATCH + 5
    assert len(world.store.payloads) == 15
    assert collector.collect() == 15


def test_bodies_of_another_store_stay_and_do_not_stand_in_the_way(world):
    other = MemoryPayloadStore(world.clock)
    other.root = "other:/"
    for number in range(BATCH + 5):
        uri = other.put(b"%d" % number, holding(world.holders, "me")).uri
        world.holders.release([PayloadHold(uri, "me")])
    world.clock.advance(timedelta(seconds=1))
    world.free(b"mine")
    world.clock.advance(GRACE)
    collector = world.collector()
    assert collector.collect() == 1
    assert collector.account.elsewhere == BATCH + 5
    assert world.collector(store=other).collect() == BATCH + 5


class Breaking(MemoryPayloadStore):
    """A store that is away at some deletions, before or after they are done."""

    before = after = False

    def delete(self, uri):
        if self.before:
            raise PayloadStoreUnavailable("the store is away")
        super().delete(uri)
        if self.after:
            raise PayloadStoreUnavailable("the answer was lost")


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_run_that_is_cut_off_is_finished_by_the_next(world, when):
    world.store = Breaking(world.clock)
    uri = world.free(b"free")
    world.clock.advance(GRACE)
    setattr(world.store, when, True)
    with pytest.raises(PayloadStoreUnavailable):
        world.collector().collect()
    assert world.holders.known([uri]) == {uri}
    again = world.put(b"free")
    assert again != uri, "who puts the same now has another name"
    setattr(world.store, when, False)
    assert world.collector().collect() == 1
    assert [one.uri for one in world.store.find_all()] == [again]
    assert world.holders.known([uri, again]) == {again}


def test_a_deletion_that_comes_late_takes_nothing_that_was_put_since(world):
    """A run was stopped with its deletion under way, and another one has finished its work."""
    uri = world.free(b"body")
    world.clock.advance(GRACE)
    world.collector().collect()
    again = world.put(b"body")
    world.store.delete(uri)
    assert [one.uri for one in world.store.find_all()] == [again]


def test_only_what_is_old_and_not_registered_is_named_as_such(world):
    old = world.store.put(b"old").uri
    world.put(b"held")
    world.free(b"free")
    before = world.clock.advance(DAY) or world.clock.now()
    world.store.put(b"young")
    found = unregistered(world.store, world.holders, before)
    assert [one.uri for one in found] == [old]
