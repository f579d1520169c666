"""Idle: what a worker costs while there is nothing to do."""

from __future__ import annotations

import time
from typing import Any

import redis

from harness.redis_counters import by_name, counts, monitored
from harness.worker import Worker

#: A worker that has just started is not idle yet (s).
SETTLES_WITHIN = 3.0
#: How long is looked, once for the numbers and once for the names (s).
WINDOW = 15.0


def watched(worker: Worker, url: str) -> dict[str, Any]:
    """Return round trips and commands a second, by name too, and processor time a minute."""
    worker.wait_ready()
    time.sleep(SETTLES_WITHIN)
    with redis.Redis.from_url(url) as client:
        before, used, began = counts(client), worker.cpu_seconds(), time.monotonic()
        time.sleep(WINDOW)
        took = time.monotonic() - began
        added, cpu = counts(client).since(before), worker.cpu_seconds() - used
    with monitored(url) as found:
        time.sleep(WINDOW)
    return {
        "round_trips_per_second": round(added.round_trips / took, 2),
        "commands_per_second": round(added.commands / took, 2),
        "client_commands_per_second": by_name(found, "client", WINDOW),
        "script_commands_per_second": by_name(found, "script", WINDOW),
        "cpu_seconds_per_minute": round(cpu / took * 60, 3),
    }
