"""The sides that several figures compare, and how much each run has to do."""

from __future__ import annotations

import os
import uuid

from harness.site import Load, Side

PAIRS = 5
#: Fewer for a quick look while working on the code; the report tells how many there were.
EVENTS = int(os.environ.get("BENCH_EVENTS", "10000"))

TRANSPORT = "angzarr.adapters.redis.transport:Transport"

#: Plain Celery on kombu's own transport.
STOCK = Side(app="workers.noop_celery", environment={})
#: The same app on ours.
OURS = Side(app="workers.noop_celery", environment={"BENCH_TRANSPORT": TRANSPORT})


def load(broker: str, pool: str = "prefork", *, events: int = EVENTS, prefetch: int = 4) -> Load:
    """Return a load for two processes or threads in a queue of its own."""
    return Load(
        broker=broker, queue=f"bench-{uuid.uuid4().hex[:8]}", events=events,
        pool=pool, concurrency=2, prefetch=prefetch,
    )  # fmt: skip


def pool_of(pool: str) -> str:
    """Return how the report names a pool of *load*'s size."""
    return f"{pool}, 2 {'children' if pool == 'prefork' else 'threads'}"
