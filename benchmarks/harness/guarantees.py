"""Guarantees: whether a rate was reached with them, by what a drain left behind."""

from __future__ import annotations

import json
import re

import redis

from harness.drain import DrainFailed
from harness.servers import Store

#: How a fact says that its event was handled, as text or as JSON.
HANDLED = re.compile(r"""outcome['"]: ?['"]handled""")


def expect_all(store: Store, log: str, events: int, *, facts: int | None = None) -> None:
    """Raise DrainFailed unless each event has a completed record, and its fact is in *log*.

    *facts*: how many are to be there, where that is not one for each event.
    """
    _expect(_completed(store), events, "have a completed record")
    expected = events if facts is None else facts
    _expect(len(HANDLED.findall(log)), expected, "have their fact in the log")


def expect_handbuilt(store: Store, events: int) -> None:
    """Raise DrainFailed unless each event has a completed record of Powertools', and a breaker."""
    with redis.Redis.from_url(store.url, decode_responses=True) as client:
        pipeline = client.pipeline(transaction=False)
        for key in _keys(client, f"{store.prefix}:handle#*"):
            pipeline.get(key)
        records = [json.loads(text) for text in pipeline.execute()]
        breaker = client.get(f"{store.prefix}:pybreaker:state")
    completed = sum(record["status"] == "COMPLETED" for record in records)
    _expect(completed, events, "have a completed record")
    if breaker != "closed":
        msg = f"the breaker that is shared should be closed and is {breaker}"
        raise DrainFailed(msg)


def _completed(store: Store) -> int:
    with redis.Redis.from_url(store.url, decode_responses=True) as client:
        pipeline = client.pipeline(transaction=False)
        for key in _keys(client, f"{store.prefix}:idempotency:*"):
            pipeline.hget(key, "status")
        return int(pipeline.execute().count("completed"))


def _keys(client: redis.Redis, pattern: str) -> set[str]:
    """All keys of *pattern*; a scan may give one twice."""
    return set(client.scan_iter(pattern, count=1000))


def _expect(found: int, events: int, what: str) -> None:
    if found != events:
        msg = f"{found} of {events} events {what}"
        raise DrainFailed(msg)
