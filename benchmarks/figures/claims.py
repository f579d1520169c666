"""What claims cost on Redis in batches, against two round trips for each event that do nothing."""

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
from angzarr.resilience.idempotency import Claim, Claimed, ClaimEnd, Complete

#: Short runs, many pairs: what else the machine does falls on both sides of a pair.
PAIRS = 41
#: Claimed, and completed, by one call.
BATCH = 64
#: Of a run: whole batches.
EVENTS = 4 * BATCH
NOTHING = "return 1"
FINGERPRINT = "0" * 64
#: Handles so many events.
Run = Callable[[int], None]


def in_batches(store: RedisIdempotencyStore, owner: str) -> Run:
    """Return what claims new events and completes them, as a worker does with what has come."""

    def run(events: int) -> None:
        for _ in range(0, events, BATCH):
            claims = [_claim(owner) for _ in range(BATCH)]
            if store.claim(claims) != [Claimed(starts=1)] * BATCH:
                msg = "a new event was not claimed"
                raise AssertionError(msg)
            done = [ClaimEnd(one.key, one.token, Complete(result="null")) for one in claims]
            if not all(store.settle_all(done)):
                msg = "a claimed event was not completed"
                raise AssertionError(msg)

    return run


def one_by_one(store: RedisIdempotencyStore, owner: str) -> Run:
    """Return what makes the same two calls for each event."""

    def run(events: int) -> None:
        for _ in range(events):
            claim = _claim(owner)
            if store.claim([claim]) != [Claimed(starts=1)]:
                msg = "a new event was not claimed"
                raise AssertionError(msg)
            if not store.settle(claim.key, claim.token, Complete(result="null")):
                msg = "a claimed event was not completed"
                raise AssertionError(msg)

    return run


def _claim(owner: str) -> Claim:
    token = uuid.uuid4().hex
    return Claim(
        key=f"idempotency:bench:{token}", token=token, owner=owner, fingerprint=FINGERPRINT
    )


def two_empty_scripts(client: redis.Redis, prefix: str) -> Run:
    """Return two EVALSHA for each event of a script that does nothing, by redis-py's client."""
    digest = client.script_load(NOTHING)

    def run(events: int) -> None:
        for _ in range(events):
            key = f"{prefix}:bench:{uuid.uuid4().hex}"
            client.evalsha(digest, 1, key)
            client.evalsha(digest, 1, key)

    return run


def timed(run: Run) -> Callable[[], float]:
    """Return what lets *run* handle `EVENTS` events and tells the microseconds of one."""

    def block() -> float:
        began = perf_counter()
        run(EVENTS)
        return (perf_counter() - began) / EVENTS * 1e6

    return block


def measure() -> Measured:
    """Measure batches against redis-py's public client, and beside it claims one by one."""
    with servers.redis_store() as at, redis.Redis.from_url(at.url, decode_responses=True) as plain:
        client = RedisClient(at.url)
        RedisOwnerLeases(client, prefix=at.prefix).renew("bench", timedelta(minutes=10))
        store = RedisIdempotencyStore(client, prefix=at.prefix)
        theirs = timed(two_empty_scripts(plain, at.prefix))
        together = _pairs(timed(in_batches(store, "bench")), theirs)
        alone = _pairs(timed(one_by_one(store, "bench")), theirs)
        client.close()
    return Measured(
        values=ratios(together),
        detail={
            "us_an_event_in_batches": round(medians(together).ours, 1),
            "us_an_event_one_by_one": round(medians(alone).ours, 1),
            "us_two_evalsha": round(medians(together).theirs, 1),
            "ratio_one_by_one": round(sorted(ratios(alone))[PAIRS // 2], 3),
            "batch": BATCH,
            "events_a_run": EVENTS,
            "redis": servers.redis_version(),
        },
    )


def _pairs(ours: Callable[[], float], theirs: Callable[[], float]) -> list[Pair]:
    return alternate(ours, theirs, pairs=PAIRS, discarded=2)


FIGURES = (
    Figure(
        key="claim_time_ratio",
        title="claim and complete in batches on Redis",
        unit="ratio",
        aim="≤ 0.3",
        against="two EVALSHA of `return 1` with one key for each event, by redis-py's own client",
        how=(
            "One process and one connection over TCP to the same Redis. Ours claims 64 new events"
            " with owner, position, start count and fingerprint by one call and completes them with"
            " their results by another (`RedisIdempotencyStore`, without the cache of completed"
            " keys). The ratio is that of the time of one event. Ours one by one stands beside it."
        ),
        measure=measure,
    ),
)
