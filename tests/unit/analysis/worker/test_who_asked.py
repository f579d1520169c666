"""A replay's message says who asked for it, whoever sends it in the end."""

from __future__ import annotations

import pytest
from tests.contracts.ledger import letter_of
from tests.unit.analysis.worker.test_worker import LEASE, PAUSE, World

from angzarr.errors import BrokerUnavailable
from angzarr.events import headers as names


@pytest.fixture
def world():
    return World()


def asked(world):
    return [message.headers.get(names.REPLAYED_BY) for message in world.publisher.sent]


def test_a_replay_by_a_rule_names_the_analysis_worker(world):
    world.queue.send(letter_of())
    world.worker.step()
    world.clock.sleep(PAUSE)
    world.worker.step()
    assert asked(world) == ["analysis@here"]


def test_a_replay_that_another_worker_sends_still_names_who_began_it(world):
    entry = world.ledger.add_failed_event(letter_of())
    world.publisher.fail["publish"] = BrokerUnavailable("away")
    with pytest.raises(BrokerUnavailable):
        world.replayer.replay(entry, letter_of(), by="ann@desk")
    world.publisher.fail.clear()
    world.clock.sleep(LEASE)
    world.restart()
    world.worker.step()
    assert asked(world) == ["ann@desk"]


def test_a_later_replay_does_not_name_who_asked_for_the_one_before(world):
    entry = world.ledger.add_failed_event(letter_of())
    assert world.replayer.replay(entry, letter_of(), by="ann") == ""
    (first,) = world.publisher.sent
    again = letter_of(replay=1, message=first)
    entry = world.ledger.add_failed_event(again)
    assert world.replayer.replay(entry, again, by="x" * 5_000) == ""
    assert asked(world) == ["ann", "x" * names.LONGEST_REASON]
