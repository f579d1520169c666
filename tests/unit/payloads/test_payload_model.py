"""Random histories with crashes: no body is deleted that anything needs, and few are left over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from angzarr.adapters.memory.payload_holders import MemoryPayloadHolders
from angzarr.dead_letters.holding_queue import HoldingQueue
from angzarr.dead_letters.letter import Reason
from angzarr.delivery import settle
from angzarr.payloads import holders
from angzarr.payloads.collector import PayloadState
from angzarr.resilience.idempotency import RECORD_LIFE
from payload_model.runs import run
from payload_model.world import CONTENTS, GRACE, World

HISTORIES = 1000


def test_no_needed_body_is_deleted_in_a_thousand_histories():
    kills = deleted = 0
    for seed in range(HISTORIES):
        account = run(seed)
        assert account.wrong == [], f"history {seed}"
        assert all(account.left.values()), "what is left over is what a crash left held"
        kills, deleted = kills + account.kills, deleted + account.deleted
    assert (kills > HISTORIES, deleted > HISTORIES) == (True, True), "something happened in them"


@pytest.mark.parametrize("seed", range(50))
def test_without_a_crash_no_body_is_left_over(seed):
    """Unless an event was published again while a later copy of it waited."""
    account = run(10_000 + seed, rate=0.0)
    assert (account.wrong, account.unexplained) == ([], {})


@pytest.mark.parametrize("seed", range(50))
def test_without_a_crash_no_encrypted_body_is_left_over_either(seed):
    account = run(20_000 + seed, rate=0.0, seals=True)
    assert (account.wrong, account.unexplained) == ([], {})


def test_no_needed_encrypted_body_is_deleted():
    accounts = [run(30_000 + seed, seals=True) for seed in range(HISTORIES // 4)]
    assert [one.wrong for one in accounts if one.wrong] == []
    assert sum(one.kills for one in accounts) > 0
    assert sum(one.deleted for one in accounts) > len(accounts)


def test_the_model_notices_an_encrypted_body_that_its_copy_leaves_held(monkeypatch):
    monkeypatch.setattr(settle, "left_behind", lambda *_deliveries: None)
    assert any(run(20_000 + seed, rate=0.0, seals=True).unexplained for seed in range(50))


# -- the model notices what is broken --------------------------------------------------------------


def a_name_is_used_again(monkeypatch):
    hold = MemoryPayloadHolders.hold

    def again(self, address, size, holder, *, fresh):
        return hold(self, address, size, holder, fresh=f"{address}-{'0' * 16}")

    monkeypatch.setattr(MemoryPayloadHolders, "hold", again)


def a_body_is_condemned_without_a_look(monkeypatch):
    def condemn(self, uris, _state, _span):
        there = [uri for uri in uris if uri in self._by_uri]
        for uri in there:
            self._by_uri[uri].state = PayloadState.CONDEMNED
            self._current.pop(holders.address_of(uri), None)
        return there

    monkeypatch.setattr(MemoryPayloadHolders, "condemn", condemn)


def a_condemned_body_may_be_joined(monkeypatch):
    def join(self, uri, holder):
        found = self._by_uri.get(uri)
        if found is not None:
            found.holders.add(holder)
        return found is not None

    monkeypatch.setattr(MemoryPayloadHolders, "_join", join)


def a_letter_holds_nothing(monkeypatch):
    monkeypatch.setattr(HoldingQueue, "_join", lambda _self, _holds: "")


def a_wait_releases_the_body(monkeypatch):
    come_back = settle.Settler._come_back

    def released(self, delivery, *args, releases=None, **options):
        return come_back(self, delivery, *args, releases=delivery.hold, **options)

    monkeypatch.setattr(settle.Settler, "_come_back", released)


def a_copy_with_the_same_body_loses_it(monkeypatch):
    monkeypatch.setattr(settle, "left_behind", lambda delivery, _body: delivery.hold)


BROKEN: list[Callable[[Any], None]] = [
    a_name_is_used_again,
    a_body_is_condemned_without_a_look,
    a_condemned_body_may_be_joined,
    a_letter_holds_nothing,
    a_wait_releases_the_body,
    a_copy_with_the_same_body_loses_it,
]


@pytest.mark.parametrize("broken", BROKEN, ids=lambda one: one.__name__)
def test_the_model_notices(monkeypatch, broken):
    broken(monkeypatch)
    assert any(run(seed).wrong for seed in range(HISTORIES))


# -- one history that chance rarely plays ----------------------------------------------------------


def fail_anew_before_the_first_letter_is_released() -> list[str]:
    """What is missed where an event fails, is pruned, and fails again with the same body."""
    world = World(0, rate=0.0)
    world._run = lambda delivery: world._dead(delivery, Reason.REFUSED)  # type: ignore[method-assign]
    for _ in range(2):
        world.publish("e0", CONTENTS[0])
        world.deliver(0)
        if world.ledger.entries:
            break
        world.ingest()
        world.ledger.end("e0")
        world.let_pass(2 * RECORD_LIFE)
    world.ledger.clear()
    assert len(world.letters.waiting) == 1, "the second letter is in its queue"
    world.upkeep.remove(world.clock.now())
    world.let_pass(GRACE)
    world.collect()
    world.late.catch_up()
    world.check_all()
    return world.problems


def test_an_event_that_fails_anew_keeps_its_body():
    assert fail_anew_before_the_first_letter_is_released() == []


def test_the_model_notices_a_letter_that_has_one_name_for_ever(monkeypatch):
    monkeypatch.setattr(holders, "_day", lambda _at: "")
    assert fail_anew_before_the_first_letter_is_released() != []
