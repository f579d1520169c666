"""What leaves holds for nothing: no needed body goes, a person sees what is left, `keep` bounds it.

A process that is killed at any step of a replay, a purged queue, an event that is sent again.
"""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from angzarr.dead_letters.letter import Reason
from angzarr.delivery.delivery import Handled, Retried
from angzarr.delivery.failure_policy import UNREADABLE
from angzarr.payloads.collector import CollectionTerms, PayloadCollector, PayloadState
from payload_model.crashes import Crash, Killer
from payload_model.world import CONTENTS, GRACE, World


class KillAt(Killer):
    """Kills before or behind one call: the *number*-th place at which it may."""

    def __init__(self, killer: Killer, number: int) -> None:
        super().__init__(killer.chance, 0.0)
        self.left = number

    def _may_kill(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.kills += 1
            raise Crash


#: More places than a replay has: a test that comes to its end unharmed has seen them all.
PLACES = range(1, 40)


def failed() -> World:
    """A world with one entry, whose letter holds a body in the store."""
    world = World(0, rate=0.0)
    world.chance.random = lambda: 0.9  # type: ignore[method-assign]
    world._run = lambda delivery: world._dead(delivery, Reason.REFUSED)  # type: ignore[method-assign]
    world.publish("e0", CONTENTS[0])
    world.deliver(0)
    world.ingest()
    assert [len(entry.letters) for entry in world.ledger.entries.values()] == [1]
    return world


def killed_in_a_replay(place: int, edited: str | None) -> tuple[World, bool]:
    """A world in which the process that replays its entry is killed at *place*; False: it ends."""
    world = failed()
    killer = world.killer
    world.killer = KillAt(killer, place)
    world.connect()
    try:
        world.replay("e0", edited)
    except Crash:
        return world, True
    finally:
        world.killer = killer
        world.connect()
    return world, False


def finish(world: World) -> None:
    """Let a person close the entry, and the grace period pass."""
    world.check_all()
    world.ledger.clear()
    world.upkeep.remove(world.clock.now())
    world.let_pass(GRACE)
    world.collect()
    world.check_all()
    assert world.problems == []


def assert_keep_bounds(world: World) -> None:
    """What is left goes once it was held for `payloads.keep`."""
    bound = CollectionTerms(grace=GRACE, keep=2 * GRACE)
    world.let_pass(2 * GRACE)
    PayloadCollector(register=world.holders, store=world.bodies, terms=bound).collect()
    assert world.bodies.known == set()


def left_by(world: World) -> list[str]:
    """Who holds the bodies that are left, as `angzarr payload list` tells it."""
    found = world.holders.find(PayloadState.HELD, timedelta(0), limit=9)
    assert world.bodies.known == {one.uri for one in found}
    return sorted(one.holder for one in found)


@pytest.mark.parametrize("edited", [None, CONTENTS[1]], ids=["as it is", "edited"])
def test_a_replay_that_is_sent_again_leaves_nothing(edited):
    died = 0
    for place in PLACES:
        world, killed = killed_in_a_replay(place, edited)
        died += killed
        world.replay("e0", edited)  # the ledger knows that it has begun, and sends it again
        world._run = lambda _delivery: Handled(value=None, result="null")
        while world.queue:
            world.deliver(0)
        finish(world)
        assert world.bodies.known == set()
    assert 4 <= died < len(PLACES)


def test_a_replay_that_is_not_sent_again_leaves_a_body_that_is_seen_and_bounded():
    held = 0
    for place in PLACES:
        world, _ = killed_in_a_replay(place, CONTENTS[1])
        sent = bool(world.queue)
        finish(world)
        found = world.holders.find(PayloadState.HELD, timedelta(0), limit=9)
        assert world.bodies.known <= {one.uri for one in found}
        assert [one.holder.partition("#")[0] for one in found] in ([], ["idempotency:h:e0"])
        held += bool(found) and not sent
        assert_keep_bounds(world)
    assert held > 0, "some were killed between registering and sending"


def test_a_purged_queue_leaves_bodies_that_are_seen_and_bounded():
    world = failed()
    for number, content in enumerate(CONTENTS, start=1):
        world.publish(f"e{number}", content)
    world.queue.clear()
    finish(world)
    assert [one.split("#")[0] for one in left_by(world)] == [
        f"idempotency:h:e{number}" for number in (1, 2, 3)
    ]
    assert_keep_bounds(world)


def test_an_event_that_is_sent_again_while_a_copy_has_another_body_leaves_one(monkeypatch):
    world = failed()
    edited = json.dumps([[CONTENTS[2]], {}, {}]).encode()
    again = Retried(
        error=ValueError("no"), delay=timedelta(0), seen=UNREADABLE, max_attempts=9, body=edited
    )
    monkeypatch.setattr(world, "_run", lambda _delivery: again)
    world.publish("e1", CONTENTS[1])
    world.deliver(0)  # now a copy waits, with another body
    world.publish("e1", CONTENTS[1])
    world.deliver(1)
    assert world.superseded == {"e1"}
    monkeypatch.setattr(world, "_run", lambda _delivery: Handled(value=None, result="null"))
    world.deliver(0)
    finish(world)
    assert [one.split("#")[0] for one in left_by(world)] == ["idempotency:h:e1"]
    assert_keep_bounds(world)
