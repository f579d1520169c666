"""What a claim costs on Redis, against two round trips that do nothing."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import timedelta
from time import perf_counter

import redis
from harness import servers
from harness.figure import Figure, Measured
from harness.pairs import Pair, alternate, medians, ratios

from angzarr.adapters.redis.idempotency import RedisIdempotencyStore, RedisOwnerLeases
from angzarr.adapters.redis.link import RedisClient
from angzarr.resilience.idempotency import Claim, Claimed, Complete

#: Short runs, many pairs: what else the machine does falls on both sides of a pair.
PAIRS = 41
EVENTS = 200
NOTHING = "return 1"
FINGERPRINT = "0" * 64


def claim_and_complete(store: RedisIdempotencyStore, owner: str) -> Callable[[], None]:
    """Return what claims and completes one new event, as the road does for each delivery."""

    def run() -> None:
        token = uuid.uuid4().hex
        key = f"idempotency:bench:{token}"
        claim = Claim(key=key, token=token, owner=owner, fingerprint=FINGERPRINT)
        if store.claim([claim]) != [Claimed(starts=1)]:
            msg = "a new event was not claimed"
            raise AssertionError(msg)
        if not store.settle(key, token, Complete(result="null")):
            msg = "a claimed event was not completed"
            raise AssertionError(msg)

    return run


def two_empty_scripts(client: RedisClient, prefix: str) -> Callable[[], None]:
    """Return two EVALSHA of a script that does nothing, through our own client."""
    digest = client.execute("SCRIPT", "LOAD", NOTHING)

    def run() -> None:
        key = f"{prefix}:bench:{uuid.uuid4().hex}"
        client.execute("EVALSHA", digest, 1, key)
        client.execute("EVALSHA", digest, 1, key)

    return run


def two_empty_scripts_by_redis_py(client: redis.Redis, prefix: str) -> Callable[[], None]:
    """Return the same through redis-py's public client, with its pool."""
    digest = client.script_load(NOTHING)

    def run() -> None:
        key = f"{prefix}:bench:{uuid.uuid4().hex}"
        client.evalsha(digest, 1, key)
        client.evalsha(digest, 1, key)

    return run


def timed(run: Callable[[], None]) -> Callable[[], float]:
    """Return what runs *run* `EVENTS` times and tells the microseconds of one."""

    def block() -> float:
        began = perf_counter()
        for _ in range(EVENTS):
            run()
        return (perf_counter() - began) / EVENTS * 1e6

    return block


def measure() -> Measured:
    """Measure against the same client, and beside it against redis-py's own."""
    with servers.redis_store() as at, redis.Redis.from_url(at.url, decode_responses=True) as plain:
        client = RedisClient(at.url)
        RedisOwnerLeases(client, prefix=at.prefix).renew("bench", timedelta(minutes=10))
        ours = timed(claim_and_complete(RedisIdempotencyStore(client, prefix=at.prefix), "bench"))
        same = _pairs(ours, timed(two_empty_scripts(client, at.prefix)))
        public = _pairs(ours, timed(two_empty_scripts_by_redis_py(plain, at.prefix)))
        client.close()
    return Measured(
        values=ratios(same),
        detail={
            "us_claim_and_complete": round(medians(same).ours, 1),
            "us_two_evalsha_same_client": round(medians(same).theirs, 1),
            "us_two_evalsha_redis_py": round(medians(public).theirs, 1),
            "ratio_to_redis_py": round(sorted(ratios(public))[PAIRS // 2], 3),
            "events_a_run": EVENTS,
            "redis": servers.redis_version(),
        },
    )


def _pairs(ours: Callable[[], float], theirs: Callable[[], float]) -> list[Pair]:
    return alternate(ours, theirs, pairs=PAIRS, discarded=2)


FIGURES = (
    Figure(
        key="claim_time_ratio",
        title="claim and complete on Redis",
        unit="ratio",
        aim="≤ 1.15",
        against="two EVALSHA of `return 1` with one key through the same `RedisClient` (hiredis)",
        how=(
            "One process and one connection over TCP to the same Redis. Ours claims a new event"
            " with owner, position, start count and fingerprint and completes it with its result"
            " (`RedisIdempotencyStore`, without the cache of completed keys). The same against"
            " redis-py's public client stands beside it."
        ),
        measure=measure,
    ),
)
