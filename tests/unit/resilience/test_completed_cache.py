from __future__ import annotations

from datetime import timedelta

import pytest
from tests.hand_clock import HandClock

from angzarr.adapters.memory.idempotency import MemoryIdempotencyStore, MemoryOwnerLeases
from angzarr.resilience.claim_memory import MAX_RESULT, CompletedCache
from angzarr.resilience.idempotency import (
    AlreadyCompleted,
    AlreadyFailed,
    Claim,
    Claimed,
    Complete,
    Conflict,
    Fail,
    Position,
)


class CountingStore(MemoryIdempotencyStore):
    asked = 0

    def claim(self, claims, /):
        self.asked += len(claims)
        return super().claim(claims)


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture
def store(clock):
    return CountingStore(MemoryOwnerLeases(clock), clock=clock)


@pytest.fixture
def cache(store, clock):
    return CompletedCache(store, size=2, clock=clock)


def a_claim(key: str = "k", token: str = "t", **rest: object) -> Claim:
    return Claim(key=key, token=token, owner="o", **rest)


def complete(store, key: str = "k", result: str | None = "1", **rest: object) -> None:
    store.claim([a_claim(key, **rest)])
    store.settle(key, "t", Complete(result=result))


def test_what_is_claimed_anew_is_asked_for_and_forgotten(cache, store) -> None:
    complete(cache)
    assert cache.claim([a_claim(token="u", anew=True)]) == [Claimed(starts=1)]
    assert cache.claim([a_claim(token="u")]) == [Claimed(starts=1)], "and not that it was completed"
    cache.settle("k", "u", Complete(result="2"))
    assert cache.claim([a_claim(token="v")]) == [AlreadyCompleted(result="2")]


def test_own_completion_is_answered_without_the_store(cache, store) -> None:
    complete(cache)
    store.asked = 0
    assert cache.claim([a_claim(token="u")]) == [AlreadyCompleted(result="1")]
    assert store.asked == 0


def test_completion_of_another_process_is_asked_for_once(cache, store) -> None:
    complete(store)
    store.asked = 0
    for _ in range(3):
        assert cache.claim([a_claim(token="u")]) == [AlreadyCompleted(result="1")]
    assert store.asked == 1


def test_known_and_unknown_keys_share_a_batch(cache, store) -> None:
    complete(cache, "a")
    store.asked = 0
    batch = [a_claim(key, token="u") for key in ("x", "a", "y")]
    assert cache.claim(batch) == [Claimed(), AlreadyCompleted(result="1"), Claimed()]
    assert store.asked == 2


def test_pending_and_failed_are_always_asked_for(cache, store) -> None:
    cache.claim([a_claim()])
    cache.settle("k", "t", Fail())
    store.asked = 0
    for _ in range(2):
        assert cache.claim([a_claim(token="u")]) == [AlreadyFailed()]
    assert store.asked == 2


def test_fenced_completion_is_not_remembered(cache, store) -> None:
    cache.claim([a_claim()])
    store.claim([a_claim(token="successor")])
    assert not cache.settle("k", "t", Complete(result="late"))
    store.settle("k", "successor", Complete(result="right"))
    assert cache.claim([a_claim(token="u")]) == [AlreadyCompleted(result="right")]


def test_another_body_or_replay_is_left_to_the_store(cache, store) -> None:
    complete(cache, fingerprint="x")
    store.asked = 0
    assert cache.claim([a_claim(token="u", fingerprint="y")]) == [Conflict()]
    replay = a_claim(token="u", fingerprint="y", position=Position(1, 0))
    assert cache.claim([replay]) == [AlreadyCompleted(result="1")]
    assert store.asked == 2


def test_cache_is_bounded_and_forgets_the_longest_unused(cache, store) -> None:
    for key in ("a", "b"):
        complete(cache, key)
    cache.claim([a_claim("a", token="u")])
    complete(cache, "c")
    store.asked = 0
    cache.claim([a_claim("a", token="u"), a_claim("c", token="u")])
    assert store.asked == 0
    cache.claim([a_claim("b", token="u")])
    assert store.asked == 1


def test_claims_that_others_settle_do_not_pile_up(cache) -> None:
    for number in range(10):
        cache.claim([a_claim(f"k{number}", token=f"t{number}")])
    assert len(cache._held) == 2


def test_entry_ends_with_the_record(store, clock) -> None:
    cache = CompletedCache(store, clock=clock, life=timedelta(hours=1))
    cache.claim([a_claim()])
    cache.settle("k", "t", Complete(life=timedelta(seconds=5)))
    clock.sleep(timedelta(seconds=5))
    assert cache.claim([a_claim(token="u")]) == [Claimed()]


def test_large_result_stays_in_the_store(cache, store) -> None:
    complete(cache, result="x" * (MAX_RESULT + 1))
    store.asked = 0
    assert len(cache.claim([a_claim(token="u")])[0].result) == MAX_RESULT + 1
    assert store.asked == 1
