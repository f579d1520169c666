"""Hammer: threads of many processes ask one breaker again and again, without a pause.

`python -m workers.hammer REDIS PREFIX URL`; each line that it reads says whose breaker, its name,
the probes that it allows and the moment to stop (s, monotonic). For each it prints how many calls
were asked for, and how many of them made. The processes are forked, as a worker's are.
"""

from __future__ import annotations

import multiprocessing
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NamedTuple, TypeAlias

import httpx
import pybreaker
import redis

from angzarr.adapters.redis.breaker import RedisBreakers
from angzarr.adapters.redis.flow_line import FlowLine
from angzarr.errors import CircuitOpenError
from angzarr.resilience.breaker import BreakerSettings
from angzarr.resilience.breaker_guard import BreakerGuard, Guard

PROCESSES, THREADS = 8, 8
#: Longer than any blow lasts: who was let through waits for its answer.
PATIENCE = 60.0
#: How long a breaker that has opened stays so: it is half-open while it is hammered at.
OPEN_FOR = timedelta(seconds=1)

#: Makes a call by way of a breaker, or raises one of REFUSED.
Door: TypeAlias = Callable[[Callable[[], object]], object]
REFUSED = (CircuitOpenError, pybreaker.CircuitBreakerError)


class Blow(NamedTuple):
    """At which breaker to hammer, how many probes it allows, and until when."""

    side: str
    name: str
    probes: int
    until: float


class Count(NamedTuple):
    """Calls that were asked for, and that were made."""

    asked: int
    made: int


def settings(probes: int) -> BreakerSettings:
    """Return those of a breaker that is hammered at, as all who use it must have them."""
    return BreakerSettings(probes=probes, open_for=OPEN_FOR)


def pybreaker_at(url: str, prefix: str, name: str) -> pybreaker.CircuitBreaker:
    """Return theirs, shared through Redis."""
    storage = pybreaker.CircuitRedisStorage(
        pybreaker.STATE_CLOSED, redis.Redis.from_url(url), namespace=f"{prefix}:{name}"
    )
    return pybreaker.CircuitBreaker(
        fail_max=5, reset_timeout=OPEN_FOR.total_seconds(), state_storage=storage
    )


@contextmanager
def _angzarr(url: str, prefix: str, blow: Blow) -> Iterator[Door]:
    line = FlowLine(url, prefix=prefix)
    breakers = RedisBreakers(line, {blow.name: settings(blow.probes)})
    yield BreakerGuard(
        guard=Guard(blow.name), breakers=lambda: breakers, is_ill=lambda _error: True
    ).call
    line.close()


@contextmanager
def _pybreaker(url: str, prefix: str, blow: Blow) -> Iterator[Door]:
    yield pybreaker_at(url, prefix, blow.name).call


SIDES = {"angzarr": _angzarr, "pybreaker": _pybreaker}


def hammer(store: str, prefix: str, url: str, blow: Blow) -> Count:
    """Hammer with the threads of this process."""
    counts: list[Count] = []
    with (
        httpx.Client(trust_env=False, timeout=PATIENCE) as client,
        SIDES[blow.side](store, prefix, blow) as door,
    ):

        def strike() -> None:
            counts.append(_strike(door, lambda: client.get(f"{url}/0"), blow.until))

        threads = [threading.Thread(target=strike) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return _sum(counts)


def _strike(door: Door, call: Callable[[], object], until: float) -> Count:
    asked = made = 0
    while time.monotonic() < until:
        asked += 1
        try:
            door(call)
            made += 1
        except REFUSED:
            continue
    return Count(asked, made)


def _sum(counts: list[Any]) -> Count:
    return Count(*map(sum, zip(*counts, strict=True)))


def main(store: str, prefix: str, url: str) -> None:
    """Hammer with a fresh fleet for each line of the input."""
    fork = multiprocessing.get_context("fork")
    while said := sys.stdin.readline():
        side, name, probes, until = said.split()
        blow = Blow(side, name, int(probes), float(until))
        with fork.Pool(PROCESSES) as pool:
            counts = pool.starmap(hammer, [(store, prefix, url, blow)] * PROCESSES, chunksize=1)
        print(*_sum(counts), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
