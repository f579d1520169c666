"""Throughput of a handler that does nothing, all guarantees on, against bare Celery."""

from __future__ import annotations

import os
import re
import uuid

import redis
from harness import servers
from harness.drain import DrainFailed, Load, Side, drain
from harness.figure import Figure, Measured
from harness.pairs import alternate, medians, ratios

PAIRS = 5
#: Fewer for a quick look while working on the code; the report tells how many there were.
EVENTS = int(os.environ.get("BENCH_EVENTS", "10000"))
#: How a fact says that its event was handled, as text or as JSON.
HANDLED = re.compile(r"""outcome['"]: ['"]handled""")


def measure_rabbitmq() -> Measured:
    """Drain quorum queues in turn, each run in a fresh queue of one virtual host."""
    with servers.virtual_host() as broker:
        pairs = alternate(lambda: _ours(broker), lambda: _theirs(broker), pairs=PAIRS, discarded=1)
    middle = medians(pairs)
    return Measured(
        values=ratios(pairs),
        detail={
            "events_per_second_angzarr": round(middle.ours),
            "events_per_second_celery": round(middle.theirs),
            "events_a_run": EVENTS,
            "broker": f"RabbitMQ {servers.rabbitmq_version()}, quorum queues on both sides",
            "store": f"Redis {servers.redis_version()}",
            "pool": "prefork, 2 children",
            "prefetch_multiplier": "4 on both sides (angzarr's default is 1)",
        },
    )


def _ours(broker: str) -> float:
    with servers.redis_store() as store:
        place = {"ANGZARR_STORE": store.url, "ANGZARR_PREFIX": store.prefix}
        drained = drain(Side(app="workers.noop_angzarr", environment=place), _load(broker))
        _expect(_completed(store), "have a completed record")
        _expect(len(HANDLED.findall(drained.log)), "have their fact in the log")
    return drained.rate


def _theirs(broker: str) -> float:
    return drain(Side(app="workers.noop_celery", environment={}), _load(broker)).rate


def _load(broker: str) -> Load:
    queue = f"bench-{uuid.uuid4().hex[:8]}"
    return Load(broker=broker, queue=queue, events=EVENTS, pool="prefork", concurrency=2)


def _completed(store: servers.Store) -> int:
    with redis.Redis.from_url(store.url, decode_responses=True) as client:
        pipeline = client.pipeline(transaction=False)
        for key in client.scan_iter(f"{store.prefix}:idempotency:*", count=1000):
            pipeline.hget(key, "status")
        return int(pipeline.execute().count("completed"))


def _expect(events: int, what: str) -> None:
    """Refuse a rate that was reached without the guarantees."""
    if events != EVENTS:
        msg = f"{events} of {EVENTS} events {what}"
        raise DrainFailed(msg)


FIGURES = (
    Figure(
        key="noop_vs_celery_rabbitmq",
        title="no-op throughput on RabbitMQ, all guarantees",
        unit="ratio",
        aim="≥ 0.90",
        against="a bare Celery task with late ack, prefork 2, same queue type, prefetch and body",
        how=(
            "The queue is filled first; then one worker with two prefork children drains it. The"
            " rate is that of the handlers' starts, stamped in the children, over the middle 98 %."
            " All guarantees: claim, owner lease, start count, breaker, typed decode, fact,"
            " confirmed copies; telemetry off. A run counts only if every event ran, has a"
            " completed record, and its fact is in the log."
        ),
        measure=measure_rabbitmq,
    ),
)
