"""The sides that several figures compare, and how much each run has to do."""

from __future__ import annotations

import os
import uuid

from harness.site import PROCESSES, Load, Side

PAIRS = 5
#: Fewer for a quick look while working on the code; the report tells how many there were.
EVENTS = int(os.environ.get("BENCH_EVENTS", "10000"))
#: Celery's own default; angzarr's is 1. Both sides of a pair always have the same.
PREFETCH = int(os.environ.get("BENCH_PREFETCH", "4"))

#: In threads messages are prefetched generously, so that no side waits for a fetch: a thread that
#: wakes another costs more than the task. kombu's rate does not hang on it.
PREFETCH_IN = {
    "prefork": PREFETCH,
    PROCESSES: PREFETCH,
    "threads": int(os.environ.get("BENCH_PREFETCH", "64")),
}

TRANSPORT = "angzarr.adapters.redis.transport:RedisTransport"

#: Plain Celery on kombu's own transport.
STOCK = Side(app="workers.noop_celery", environment={})
#: The same app on ours.
OURS = Side(app="workers.noop_celery", environment={"BENCH_TRANSPORT": TRANSPORT})


def load(
    broker: str, pool: str = "prefork", *, events: int = EVENTS, prefetch: int | None = None
) -> Load:
    """Return a load for two processes or threads in a queue of its own."""
    return Load(
        broker=broker, queue=f"bench-{uuid.uuid4().hex[:8]}", events=events,
        pool=pool, concurrency=2, prefetch=prefetch or PREFETCH_IN[pool],
    )  # fmt: skip


def prefetch_of(prefetch: int = PREFETCH) -> str:
    """Return how the report tells the prefetch multiplier."""
    return f"{prefetch} on both sides (Celery's default is 4, angzarr's is 1)"


def pool_of(pool: str) -> str:
    """Return how the report names a pool of *load*'s size."""
    if pool == PROCESSES:
        return "angzarr worker, 2 processes"
    return f"{pool}, 2 {'children' if pool == 'prefork' else 'threads'}"
