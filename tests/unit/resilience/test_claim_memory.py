"""Leases, duties of the fleet and completed keys, as one process remembers them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.hand_clock import HandClock

from angzarr.adapters.memory.idempotency import MemoryIdempotencyStore, MemoryOwnerLeases
from angzarr.errors import StoreUnavailable
from angzarr.resilience.claim_memory import LEASE, MAX_RESULT, CompletedCache, FleetDuty, Tenure
from angzarr.resilience.idempotency import (
    AlreadyCompleted,
    AlreadyFailed,
    Claim,
    Claimed,
    ClaimEnd,
    Complete,
    Conflict,
    Fail,
    Position,
)

SPAN = timedelta(seconds=8)


class Leases:
    """Takes its time with each renewal; notes them."""

    def __init__(self):
        self.now, self.takes, self.away = 100.0, 0.0, False
        self.renewed, self.ended = [], []

    def renew(self, owner, span):
        if self.away:
            msg = "away"
            raise StoreUnavailable(msg)
        self.now += self.takes
        self.renewed.append((owner, span))

    def end(self, owner):
        self.ended.append(owner)


@pytest.fixture
def leases():
    return Leases()


@pytest.fixture
def tenure(leases):
    return Tenure(leases, span=SPAN, monotonic=lambda: leases.now)


def test_a_lease_counts_from_before_its_renewal(tenure, leases):
    leases.takes = 3.0
    assert tenure.renew("me") == 108.0, "the server may have heard of it at once"
    leases.now = 107.9
    assert not tenure.is_over(108.0)
    leases.now = 108.0
    assert tenure.is_over(108.0)


def test_a_lease_is_renewed_where_nobody_did_lately_and_else_it_is_known(tenure, leases):
    for now, until, renewals in [(100, 108, 1), (104, 108, 1), (104.1, 112.1, 2), (900, 908, 3)]:
        leases.now = now
        assert (tenure.secured("me"), len(leases.renewed)) == (until, renewals)
    assert set(leases.renewed) == {("me", SPAN)}


def test_what_is_known_is_known_of_one_owner(tenure, leases):
    tenure.secured("me")
    assert tenure.secured("you") == 108.0
    assert [owner for owner, _ in leases.renewed] == ["me", "you"]


def test_a_lease_that_was_ended_is_not_relied_on(tenure, leases):
    tenure.secured("me")
    tenure.end("me")
    tenure.secured("me")
    assert (len(leases.renewed), leases.ended) == (2, ["me"])


def test_a_renewal_that_fails_is_told_and_changes_nothing(tenure, leases):
    tenure.secured("me")
    leases.now, leases.away = 106.0, True
    with pytest.raises(StoreUnavailable):
        tenure.secured("me")
    leases.away = False
    assert tenure.secured("me") == 114.0


class Fleet:
    """Workers whose claim store may be away."""

    def __init__(self) -> None:
        self.clock, self.is_away = HandClock(), False
        self.leases = MemoryOwnerLeases(self.clock)
        self.store = MemoryIdempotencyStore(self.leases, clock=self.clock)
        self.asked = 0

    def worker(self, owner, name="count"):
        tenure = Tenure(self, monotonic=lambda: self.clock.now().timestamp())
        return FleetDuty(tenure, self, owner, name)

    def renew(self, owner, span, /):
        self._answer()
        self.leases.renew(owner, span)

    def claim(self, claims, /):
        self._answer()
        return self.store.claim(claims)

    def settle(self, key, token, ending, /, facts=()):
        self._answer()
        return self.store.settle(key, token, ending, facts)

    def _answer(self):
        self.asked += 1
        if self.is_away:
            raise StoreUnavailable("away")


@pytest.fixture
def fleet():
    return Fleet()


def test_one_of_a_hundred_workers_has_it_and_keeps_it(fleet):
    workers = [fleet.worker(f"w{number}") for number in range(100)]
    for _ in range(3):
        assert [one.is_ours() for one in workers] == [True] + [False] * 99
        fleet.clock.sleep(LEASE / 4)


def test_who_dies_is_followed_once_its_lease_has_ended(fleet):
    dead, next_one = fleet.worker("w1"), fleet.worker("w2")
    assert dead.is_ours()
    assert not next_one.is_ours()
    fleet.clock.sleep(LEASE + timedelta(seconds=1))
    assert next_one.is_ours()
    assert not dead.is_ours(), "it was only stopped, and lives again"


def test_who_ends_is_followed_at_once(fleet):
    one, other = fleet.worker("w1"), fleet.worker("w2")
    assert one.is_ours()
    assert not other.is_ours()
    one.end()
    assert other.is_ours()
    one.end()
    assert other.is_ours(), "it takes nothing from others"


def test_while_the_store_is_away_whoever_had_it_keeps_it(fleet):
    one, other = fleet.worker("w1"), fleet.worker("w2")
    assert (one.is_ours(), other.is_ours()) == (True, False)
    fleet.clock.sleep(LEASE)
    fleet.is_away = True
    assert (one.is_ours(), other.is_ours()) == (True, False)
    one.end()


def test_duties_of_other_names_are_others(fleet):
    assert fleet.worker("w1", "a").is_ours()
    assert fleet.worker("w2", "b").is_ours()


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


def test_own_completions_of_a_batch_are_answered_without_the_store(cache, store) -> None:
    cache.claim([a_claim("a"), a_claim("b", token="b")])
    ends = [ClaimEnd("a", "t", Complete(result="1")), ClaimEnd("b", "another's", Complete())]
    assert cache.settle_all(ends) == [True, False]
    store.asked = 0
    again = cache.claim([a_claim("a", token="u"), a_claim("b", token="b")])
    assert again == [AlreadyCompleted(result="1"), Claimed(starts=1)]
    assert store.asked == 1, "only what was not completed"


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
