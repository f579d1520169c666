"""Letters of ordered handlers that a person skips: from the road to the ledger and back."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from angzarr.adapters.memory.lanes import MemoryLanes
from angzarr.aggregates.book import Address
from angzarr.analysis.ledger.entry import Hold, Status
from angzarr.analysis.ledger.operator_actions import Verb
from angzarr.analysis.replay.bulk_actions import act_on_all
from angzarr.analysis.replay.replay import Replayer, ReplayTargets
from angzarr.analysis.replay.skip import Skips
from angzarr.analysis.worker.intake import ReplayResults
from angzarr.delivery.delivery import DeadLettered, Duplicate, Handled, Parked, Skipped
from angzarr.errors import DecodeError, GiveUp
from angzarr.events import headers as names
from angzarr.ordering.lane import Lane, Order
from sqlite_ledger import SqliteLedger

ORDER = Order(domains=frozenset({"order"}), types=frozenset({"Paid"}))
LANE = Lane("h", Address("order", "o-1"))


class Shop:
    """A road with an ordered handler, and the ledger of its letters."""

    def __init__(self, world) -> None:
        self.world = world
        self.ran = []
        self.broken = {0}
        world.lanes = MemoryLanes(world.clock)
        world.handler(self.handle, order=ORDER)
        self.ledger = SqliteLedger(world.clock)
        self.outcomes = []
        self.sent = []
        replayer = Replayer(
            ledger=self.ledger, publisher=self, clock=world.clock,
            targets=ReplayTargets(tasks={"h"}, queues={"q"}),
            answer_deadline=timedelta(hours=1),
        )  # fmt: skip
        self.replayer, self.skips = replayer, Skips(replayer=replayer)
        self.answers = ReplayResults(outcomes=self, ledger=self.ledger)

    def handle(self, data, _context):
        if data in self.broken:
            raise GiveUp("no")
        self.ran.append(data)

    def event(self, sequence, event_type="Paid"):
        return self.world.message(
            sequence, event_id=f"e{sequence}", id=f"m{sequence}",
            **{names.EVENT_TYPE: event_type, names.DOMAIN: "order", names.ROOT: "o-1",
               names.SEQUENCE: sequence},
        )  # fmt: skip

    def take(self, message):
        """Take a message, file its letter, note its answer."""
        outcome = self.world.take(message)
        journal = self.world.journal
        self.ledger.add_failed_events(journal.letters)
        journal.letters.clear()
        self.answers.turn(timedelta(0))
        return outcome

    def entry(self, sequence):
        (entry,) = (
            one for one in self.ledger.get_failed_events(status=None).entries
            if one.event_id == f"e{sequence}"
        )  # fmt: skip
        return entry

    @property
    def place(self):
        return self.world.lanes.look(LANE).next_sequence

    # -- what a replayer and Answers need ------------------------------------------------

    def publish(self, message):
        self.sent.append(message)

    def receive(self, *, limit, wait):
        taken = self.world.journal.replayed[:limit]
        del self.world.journal.replayed[:limit]
        return taken

    def done(self, outcomes):
        pass


@pytest.fixture
def shop(world):
    return Shop(world)


@pytest.mark.parametrize("verb", [Verb.SKIP, Verb.RESOLVE])
def test_a_skip_lets_the_next_event_come_and_its_entry_stays_what_was_said(shop, verb):
    assert isinstance(shop.take(shop.event(0)), DeadLettered)
    assert isinstance(shop.take(shop.event(1)), Parked)
    entry = shop.entry(0)
    assert shop.world.lanes.behind([entry.letter_id]) == {entry.letter_id: 1}
    act_on_all(shop.skips, verb, [entry], note="a test", by="ann")
    outcome = shop.take(shop.sent[0])
    assert isinstance(outcome, Skipped)
    assert "a test" in outcome.reason
    assert isinstance(shop.take(shop.world.last_copy()), Handled)
    assert (shop.ran, shop.place) == ([1], 2)
    assert isinstance(shop.take(shop.sent[0]), Duplicate), "the same skip again"
    after = shop.ledger.open(entry.id)
    said = Status.SKIPPED if verb is Verb.SKIP else Status.RESOLVED
    assert (after.entry.status, after.entry.wake_at) == (said, None)
    assert [line.what for line in after.history] == ["failed", verb, "published", "went on"]


def test_after_a_replay_the_next_failure_is_skipped(shop):
    shop.broken = {0, 1}
    shop.take(shop.event(0))
    assert isinstance(shop.take(shop.event(1)), Parked)
    shop.broken = {1}
    first = shop.entry(0)
    shop.replayer.replay(first, shop.ledger.open(first.id).failure, by="ann")
    assert isinstance(shop.take(shop.sent[-1]), Handled)
    assert isinstance(shop.take(shop.world.last_copy()), DeadLettered)
    act_on_all(shop.skips, Verb.SKIP, [shop.entry(1)], by="ann")
    assert isinstance(shop.take(shop.sent[-1]), Skipped)
    assert (shop.place, shop.ran) == (2, [0])
    assert shop.entry(0).status is Status.RESOLVED
    assert shop.entry(1).status is Status.SKIPPED


def undecodable(shop):
    def bind(_delivery, _context):
        raise DecodeError("the body fits no model")

    handler = shop.world.handlers.get("h")
    shop.world.handlers._by_name["h"] = replace(handler, bind=bind)


def test_a_replay_and_then_a_skip_that_are_parked_are_answered_in_their_turn(shop):
    """Two letters of one lane, the later one replayed first."""
    handler = shop.world.handlers.get("h")
    undecodable(shop)
    shop.take(shop.event(0))
    shop.take(shop.event(1))
    shop.world.handlers._by_name["h"] = handler
    shop.broken = set()
    later = shop.entry(1)
    shop.replayer.replay(later, shop.ledger.open(later.id).failure, by="ann")
    assert isinstance(shop.take(shop.sent[-1]), Parked)
    assert (shop.entry(1).status, shop.entry(1).hold) == (Status.RETRYING, Hold.LANE)
    act_on_all(shop.skips, Verb.SKIP, [shop.entry(1)], by="ann")
    assert isinstance(shop.take(shop.sent[-1]), Parked)
    assert (shop.entry(1).status, shop.entry(1).hold) == (Status.SKIPPED, Hold.LANE)
    first = shop.entry(0)
    shop.replayer.replay(first, shop.ledger.open(first.id).failure, by="ann")
    assert isinstance(shop.take(shop.sent[-1]), Handled)
    assert isinstance(shop.take(shop.world.last_copy()), Skipped)
    assert (shop.ran, shop.place) == ([0], 2)
    assert (shop.entry(1).status, shop.entry(1).hold) == (Status.SKIPPED, None)


def test_what_no_handler_can_read_is_skipped_all_the_same(shop):
    undecodable(shop)
    assert isinstance(shop.take(shop.event(0)), DeadLettered)
    act_on_all(shop.skips, Verb.SKIP, [shop.entry(0)], by="ann")
    assert isinstance(shop.take(shop.sent[-1]), Skipped)
    assert (shop.place, shop.entry(0).status) == (1, Status.SKIPPED)


def test_a_skip_runs_no_handler_that_has_no_order_any_more(shop):
    shop.take(shop.event(0))
    shop.broken = set()
    act_on_all(shop.skips, Verb.SKIP, [shop.entry(0)], by="ann")
    handler = shop.world.handlers.get("h")
    shop.world.handlers._by_name["h"] = replace(handler, order=None)
    assert isinstance(shop.take(shop.sent[-1]), Skipped)
    assert shop.ran == []
