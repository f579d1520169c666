from __future__ import annotations

import time

import pytest
import redis
from tests.adapters.test_redis_idempotency import CountingClient, cluster_node
from tests.contracts.idempotency import fresh
from tests.contracts.steps import RESERVE, StepLogContract

from angzarr.adapters.redis.idempotency import RedisIdempotencyStore, RedisStepLog, log_of
from angzarr.adapters.redis.link import RedisClient
from angzarr.delivery.compensation import LOG_LIFE, FinishedStep, Logged, StepLogKey
from angzarr.resilience.claim_memory import CompletedCache
from angzarr.resilience.idempotency import Claim, Claimed, Complete

__all__ = ["cluster_node"]

PREFIX = f"angzarr-{fresh()}"


@pytest.fixture
def client(redis_url):
    client = RedisClient(redis_url)
    yield client
    client.close()


@pytest.fixture
def direct(redis_url):
    with redis.Redis.from_url(redis_url, decode_responses=True) as direct:
        yield direct


class OnRedis(StepLogContract):
    @pytest.fixture
    def let_pass(self):
        return lambda span: time.sleep(span.total_seconds() + 0.02)

    @pytest.fixture
    def make_log(self, client):
        return lambda life: RedisStepLog(client, prefix=PREFIX, life=life)


class TestRedisStepLog(OnRedis):
    @pytest.fixture
    def store(self, client):
        return RedisIdempotencyStore(client, prefix=PREFIX)

    def test_every_log_expires_and_its_record_outlives_nothing(self, log, held, direct):
        log.add(held, RESERVE)
        name = log_of(f"{PREFIX}:{held.key}", held.replay)
        assert 0 < direct.pttl(name) <= LOG_LIFE.total_seconds() * 1000
        log.mark_undoing(held, "because")
        log.remove(held, RESERVE.name)
        assert not direct.exists(name)
        assert direct.hget(f"{PREFIX}:{held.key}", "steps") is None

    def test_what_others_wrote_there_is_a_step_that_nobody_can_undo(self, log, held, direct):
        log.add(held, RESERVE)
        direct.hset(log_of(f"{PREFIX}:{held.key}", 0), "s:odd", "no number:{")
        assert log.read(held).steps == (FinishedStep("odd", ""), RESERVE)


class TestBehindTheCacheAndTogether(OnRedis):
    """As an app has it: a cache before the claims, and many claims in one script."""

    @pytest.fixture
    def store(self, client):
        return CompletedCache(RedisIdempotencyStore(client, prefix=PREFIX, one=True))

    def test_of_many_claims_each_is_told_its_own(self, store, log, held):
        log.add(held, RESERVE)
        claims = [
            Claim(key=key, token=fresh(), owner="dead", counted=False)
            for key in (fresh(), held.key, fresh())
        ]
        assert store.claim(claims) == [
            Claimed(starts=0), Claimed(starts=1, steps=True), Claimed(starts=0)
        ]  # fmt: skip


def test_each_verb_is_one_round_trip(redis_url):
    client = CountingClient(redis_url)
    store, log = RedisIdempotencyStore(client, prefix=PREFIX), RedisStepLog(client, prefix=PREFIX)
    place = StepLogKey(fresh(), "t")
    store.claim([Claim(key=place.key, token="t", owner="o")])
    log.remove(place, "taught")
    store.settle(fresh(), "t", Complete(steps=0))

    def trips(step):
        before = client.trips
        step()
        return client.trips - before

    assert trips(lambda: log.add(place, RESERVE)) == 1
    assert trips(lambda: log.read(place)) == 1
    assert trips(lambda: log.mark_undoing(place, "")) == 1
    assert trips(lambda: log.remove(place, RESERVE.name)) == 1
    assert trips(lambda: store.settle(place.key, "t", Complete(steps=0))) == 1
    client.close()


@pytest.mark.parametrize("event_id", ["plain", "{tag}", "a{b}c}", "{open"])
def test_record_and_log_are_in_one_slot(cluster_node, event_id):
    client = RedisClient(cluster_node)
    store, log = RedisIdempotencyStore(client), RedisStepLog(client)
    place = StepLogKey(f"idempotency:h:{event_id}", "t", 1)
    store.claim([Claim(key=place.key, token="t", owner="o")])
    assert log.add(place, RESERVE)
    assert store.settle(place.key, "t", Complete(steps=1))
    assert log.read(place) == Logged()
    client.close()
