"""What a worker's memory grows by when a great many messages are delayed by an hour."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from amqp.exceptions import ChannelError
from harness import servers
from harness.figure import Figure, Measured, NotMeasured
from harness.private_redis import private_redis
from harness.site import Side, Site, site
from harness.worker import Worker

from figures.sides import load, pool_of

#: Fewer for a quick look while working on the code; the report tells how many there were.
MESSAGES = int(os.environ.get("BENCH_DELAYED", "100000"))
#: Delayed before the first look: what a worker imports and opens for its first delays is no growth.
WARM_UP = min(1000, MESSAGES)
#: LocalStack delays some dozens of messages a second; the way of a delay is that of Redis.
ON_SQS = "not measured: LocalStack is too slow for this many"
PATIENCE = 1200.0
#: Memory counts once it has not moved for this long (s) by more than this (MiB).
STEADY_FOR = 6.0
STEADY = 0.3


def measure() -> Measured:
    """Delay on each broker with ours, and by Celery's own countdown beside it."""
    grown: dict[str, tuple[float, float]] = {}
    for kind in ("redis", "rabbitmq_classic", "rabbitmq_quorum"):
        with _broker(kind) as (broker, environment):
            grown[kind] = _grown("workers.delayed_angzarr", broker, environment)
    beside: dict[str, tuple[float, float]] = {}
    for kind in ("redis", "rabbitmq_classic"):
        with _broker(kind) as (broker, _):
            beside[kind] = _grown("workers.delayed_celery", broker, {})
    return Measured(values=[above for _, above in grown.values()], detail=_detail(grown, beside))


def _detail(
    ours: dict[str, tuple[float, float]], theirs: dict[str, tuple[float, float]]
) -> dict[str, Any]:
    told: dict[str, Any] = {"messages": MESSAGES}
    for who, found in (("angzarr", ours), ("celery", theirs)):
        for kind, (idle, above) in found.items():
            told[f"mib_{who}_{kind}"] = f"{above:.1f} above {idle:.0f} idle"
    return told | {
        "sqs": ON_SQS,
        "broker": f"Redis {servers.redis_version()}; RabbitMQ {servers.rabbitmq_version()}",
        "store": "the same Redis; a Redis of its own beside RabbitMQ",
        "pool": pool_of("prefork"),
    }


@contextmanager
def _broker(kind: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Lend a fresh broker and what an angzarr worker needs besides."""
    with private_redis() as redis, servers.virtual_host() as amqp:
        environment = {
            "ANGZARR_STORE": redis,
            "ANGZARR_DLQ__BACKEND": "amqp",
            "ANGZARR_DLQ__AMQP_URL": amqp,
            "BENCH_QUEUE_TYPE": "classic" if kind == "rabbitmq_classic" else "quorum",
        }
        yield (redis if kind == "redis" else amqp), environment


def _grown(app: str, broker: str, environment: dict[str, str]) -> tuple[float, float]:
    """Return the worker's memory when idle, and what it has above that with all delayed (MiB)."""
    side = Side(app=app, environment=environment)
    with site(side, load(broker, events=MESSAGES)) as at:
        ours = app.endswith("angzarr")
        # Bare Celery fetches what it is to hold at some messages a second unless told "any number".
        worker = at.start(prefetch=None if ours else 0)
        try:
            worker.wait_ready()
            idle = _delayed(at, worker, 0, WARM_UP if ours else 1)
            full = _delayed(at, worker, WARM_UP, MESSAGES)
        finally:
            worker.kill()  # it would take long to give back what it holds
    return idle, full - idle


def _delayed(at: Site, worker: Worker, first: int, count: int) -> float:
    """Publish *count* more; return the memory once the worker has delayed them all."""
    at.run("workers.publish", at.side.app, str(count), str(first), BENCH_UNCONFIRMED="1")
    deadline, steady_since, before = time.monotonic() + PATIENCE, time.monotonic(), 0.0
    while True:
        worker.check()
        now = worker.pss_mib()
        if _queued(at) or abs(now - before) > STEADY:
            steady_since, before = time.monotonic(), now
        if time.monotonic() - steady_since > STEADY_FOR:
            return now
        if time.monotonic() > deadline:
            msg = f"not all of {first + count} were delayed:\n{worker.log()[-2000:]}"
            raise NotMeasured(msg)
        time.sleep(1)


def _queued(at: Site) -> int:
    """Return how many are ready; to kombu a list of Redis that is empty is no queue."""
    try:
        return at.queued()
    except ChannelError:
        return 0


FIGURES = (
    Figure(
        key="delayed_memory_mib",
        title="a worker's memory for messages delayed by an hour",
        unit="MiB",
        aim="≤ 10 MiB",
        worst=True,
        against="bare Celery's own `countdown`, which its worker holds",
        how=(
            "Events are published with a countdown of an hour to a worker with two prefork"
            " children; beside it a bare Celery worker is sent as many tasks. The proportional set"
            " size of all its processes, once the queue is empty and it no longer moves, minus what"
            " it was after the first thousand (of bare Celery's: after one). One run on each"
            " broker; the worst counts. On quorum queues RabbitMQ itself delays: its worker sees"
            " none of them."
        ),
        measure=measure,
    ),
)
