"""Entries that wait for an ill dependency: looked at again, not replayed, no replay used up."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.contracts.ledger import letter_of
from tests.hand_clock import START
from tests.unit.analysis.classification.test_evidence_collector import FakeControls
from tests.unit.analysis.worker.test_worker import World

from angzarr.analysis.classification.evidence_collector import BreakerLook
from angzarr.analysis.ledger import transition
from angzarr.analysis.ledger.entry import FailureClass, Status
from angzarr.analysis.ledger.transition import Action, EntryDecision
from angzarr.errors import BrokerUnavailable
from angzarr.resilience.breaker import BreakerSettings, BreakerState, Phase

OPEN, CLOSED = BreakerState(phase=Phase.OPEN), BreakerState()
WAIT = EntryDecision(
    action=Action.WAIT,
    failure_class=FailureClass.TRANSIENT_ONGOING,
    evidence="ill",
    delay=timedelta(seconds=30),
)


@pytest.fixture
def crm():
    return FakeControls(crm=OPEN)


@pytest.fixture
def world(crm):
    world = World()
    world.look = BreakerLook(
        controls=crm,
        names_of=lambda _handler: ("crm",),
        settings_of=lambda _name: BreakerSettings(),
        clock=world.clock,
    )
    world.restart()
    return world


def look_again(world, minutes=10):
    world.clock.sleep(timedelta(minutes=minutes))
    world.worker.step()


def test_an_entry_waits_while_the_breaker_is_open_and_no_replay_is_used_up(world):
    world.queue.send(letter_of())
    world.worker.step()
    for _ in range(6):
        look_again(world)
        assert (world.entry.status, world.entry.replays) == (Status.WAITING, 0)
        assert world.entry.failure_class is FailureClass.TRANSIENT_ONGOING
        assert world.entry.next_replay_at is None
        assert world.entry.wake_at > world.clock.now()
    assert not world.publisher.sent


def test_it_is_replayed_once_its_dependency_is_well(world, crm):
    world.queue.send(letter_of())
    world.worker.step()
    look_again(world)
    crm.found = {"crm": CLOSED}
    look_again(world)
    assert world.entry.failure_class is FailureClass.TRANSIENT_RESOLVED
    world.clock.sleep(timedelta(seconds=1))
    world.worker.step()
    assert world.entry.status is Status.RETRYING
    assert len(world.publisher.sent) == 1


def test_where_nobody_else_calls_a_replay_is_the_probe(world, crm):
    world.queue.send(letter_of())
    world.worker.step()
    crm.found = {"crm": replace(OPEN, retry_at=world.clock.now() + timedelta(minutes=15))}
    look_again(world)
    assert world.entry.next_replay_at is None
    look_again(world)
    assert world.entry.next_replay_at is not None
    look_again(world)
    assert len(world.publisher.sent) == 1


def test_a_look_that_changes_nothing_is_no_line_of_the_history(world):
    world.queue.send(letter_of())
    world.worker.step()
    lines = len(world.ledger.open(world.entry.id).history)
    for _ in range(6):
        look_again(world)
    assert len(world.ledger.open(world.entry.id).history) == lines


def test_a_replay_that_is_due_does_not_begin_into_an_open_breaker(world, crm):
    crm.found = {"crm": CLOSED}
    world.queue.send(letter_of())
    world.worker.duties[0].turn(timedelta(0))
    assert world.entry.next_replay_at is not None
    crm.found = {"crm": OPEN}
    look_again(world)
    assert not world.publisher.sent
    assert (world.entry.status, world.entry.next_replay_at) == (Status.WAITING, None)


def test_a_replay_that_began_and_was_not_sent_asks_the_breakers_when_it_is_sent(world, crm):
    crm.found = {"crm": CLOSED}
    world.queue.send(letter_of())
    world.publisher.fail["publish"] = BrokerUnavailable("away")
    world.worker.step()
    look_again(world)
    assert (world.entry.status, world.entry.published_at) == (Status.RETRYING, None)
    world.publisher.fail.clear()
    crm.found = {"crm": OPEN}
    look_again(world)
    assert not world.publisher.sent
    crm.found = {"crm": CLOSED}
    look_again(world)
    assert len(world.publisher.sent) == 1
    assert world.entry.replays == 1


def test_after_a_day_a_person_is_asked(world):
    world.queue.send(letter_of())
    world.worker.step()
    look_again(world, minutes=24 * 60)
    assert world.entry.status is Status.HELD
    assert "waited 24 h" in world.entry.evidence


def test_what_is_due_together_is_decided_together(world, crm):
    for number in range(50):
        world.queue.send(letter_of(f"e{number}"))
    world.worker.step()
    world.clock.sleep(timedelta(minutes=10))
    looks = crm.looks
    assert world.worker.step().done["due entries"] == 50
    assert crm.looks == looks + 1


def test_a_letter_or_a_person_ends_a_wait():
    entry = transition.decided(transition.filed(letter_of(), START).entry, WAIT, START, "me").entry
    assert transition.awaits_look(entry)
    assert transition.replayable(entry)
    again = transition.failed_again(entry, letter_of(replay=1), START).entry
    assert (again.status, again.wake_at) == (Status.FAILED, START + transition.UNDECIDED)


def test_another_class_is_a_line_again():
    entry = transition.decided(transition.filed(letter_of(), START).entry, WAIT, START, "me").entry
    unknown = EntryDecision(action=Action.WAIT, failure_class=FailureClass.UNKNOWN, evidence="?")
    assert transition.decided(entry, WAIT, START, "me").line is None
    assert transition.decided(entry, unknown, START, "me").line is not None
