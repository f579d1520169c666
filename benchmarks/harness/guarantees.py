"""Guarantees: whether a rate was reached with them, by what a drain left behind."""

from __future__ import annotations

import re

import redis

from harness.drain import DrainFailed
from harness.servers import Store

#: How a fact says that its event was handled, as text or as JSON.
HANDLED = re.compile(r"""outcome['"]: ?['"]handled""")


def expect_all(store: Store, log: str, events: int) -> None:
    """Raise DrainFailed unless each event has a completed record, and its fact is in *log*."""
    _expect(_completed(store), events, "have a completed record")
    _expect(len(HANDLED.findall(log)), events, "have their fact in the log")


def _completed(store: Store) -> int:
    with redis.Redis.from_url(store.url, decode_responses=True) as client:
        pipeline = client.pipeline(transaction=False)
        for key in client.scan_iter(f"{store.prefix}:idempotency:*", count=1000):
            pipeline.hget(key, "status")
        return int(pipeline.execute().count("completed"))


def _expect(found: int, events: int, what: str) -> None:
    if found != events:
        msg = f"{found} of {events} events {what}"
        raise DrainFailed(msg)
