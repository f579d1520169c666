"""What it costs to be let through a closed breaker that a fleet shares."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from importlib.metadata import version
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import pybreaker
import redis
from harness import servers
from harness.figure import Figure, Measured, NotMeasured
from harness.private_redis import private_redis
from harness.redis_counters import counts
from purgatory import AsyncCircuitBreakerFactory, AsyncRedisUnitOfWork

from angzarr.adapters.redis.breaker import RedisBreakers
from angzarr.adapters.redis.flow_line import FlowLine
from angzarr.resilience.breaker import Permit
from angzarr.resilience.breaker_guard import BreakerGuard, Guard

#: Short blocks, many of them: what else the machine does falls on all sides alike.
BLOCKS = 41
NAME = "crm"
TOOK = timedelta(milliseconds=5)


class Calls(NamedTuple):
    """So many calls at a time, and what makes them and tells the seconds that they took."""

    many: int
    run: Callable[[int], float]


def measure() -> Measured:
    """Time all sides in turn on a Redis of their own, then count what they ask of it."""
    with private_redis() as url, _ours(url) as ours, _purgatory(url) as purgatory:
        sides = {**ours, "pybreaker_call": _pybreaker(url), "purgatory_call": purgatory}
        found = _in_turn(sides)
        trips = _round_trips(url, sides)
    return Measured(
        values=found["admit"],
        detail={
            **{f"us_{name}": round(median(values), 3) for name, values in found.items()},
            "round_trips_per_call": {f"{name}:": trips[name] for name in sides},
            "calls_a_block": {f"{name}:": side.many for name, side in sides.items()},
            "redis": f"{servers.redis_version()}, a server of its own, over loopback",
            "theirs": f"pybreaker {version('pybreaker')}, CircuitRedisStorage; purgatory"
            f" {version('purgatory')}, AsyncRedisUnitOfWork (its synchronous one awaits nothing,"
            " so it does not work on Redis)",
        },
    )


def _in_turn(sides: Mapping[str, Calls]) -> dict[str, list[float]]:
    """Return the microseconds of one call, block by block, by side; the first block warms up."""
    found: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(1 + BLOCKS):
        for name, side in sides.items():
            found[name].append(side.run(side.many) / side.many * 1e6)
    return {name: values[1:] for name, values in found.items()}


def _round_trips(url: str, sides: Mapping[str, Calls]) -> dict[str, float]:
    """Return what the server reads from sockets for one call."""
    found = {}
    with redis.Redis.from_url(url) as client:
        for name, side in sides.items():
            before = counts(client)
            side.run(side.many)
            found[name] = round(counts(client).since(before).round_trips / side.many, 4)
    return found


@contextmanager
def _ours(url: str) -> Iterator[dict[str, Calls]]:
    line = FlowLine(url, prefix="bench")
    breakers = RedisBreakers(line)
    guard = BreakerGuard(
        guard=Guard(NAME), breakers=lambda: breakers, is_ill=lambda error: error is not None
    )

    def admit() -> None:
        breakers.admit(NAME, "token")

    def admit_and_record() -> None:
        permit = breakers.admit(NAME, "token")
        assert isinstance(permit, Permit)
        breakers.record(permit, ok=True, took=TOOK)

    admit_and_record()  # connects, and hears that it is closed
    if breakers.known(NAME) is None:
        msg = "the breaker is not known to be closed after its first call"
        raise NotMeasured(msg)
    try:
        yield {
            "admit": Calls(20_000, _repeated(admit)),
            "admit_and_record": Calls(20_000, _repeated(admit_and_record)),
            "guarded_call": Calls(20_000, _repeated(lambda: guard.call(nothing))),
            "bare_call": Calls(20_000, _repeated(nothing)),
        }
    finally:
        line.close()


def _pybreaker(url: str) -> Calls:
    storage = pybreaker.CircuitRedisStorage(pybreaker.STATE_CLOSED, redis.Redis.from_url(url))
    breaker = pybreaker.CircuitBreaker(fail_max=5, reset_timeout=60, state_storage=storage)
    return Calls(300, _repeated(lambda: breaker.call(nothing)))


@contextmanager
def _purgatory(url: str) -> Iterator[Calls]:
    with asyncio.Runner() as runner:
        factory = AsyncCircuitBreakerFactory(uow=AsyncRedisUnitOfWork(url))
        runner.run(factory.initialize())

        @factory(NAME)
        async def call() -> None:
            """Do nothing."""

        async def calls(many: int) -> float:
            began = perf_counter()
            for _ in range(many):
                await call()
            return perf_counter() - began

        yield Calls(300, lambda many: runner.run(calls(many)))
        contexts: Any = factory.uow.contexts
        runner.run(contexts.redis.aclose())


def nothing() -> None:
    """Stand for the call that a breaker guards."""


def _repeated(call: Callable[[], object]) -> Callable[[int], float]:
    def run(many: int) -> float:
        began = perf_counter()
        for _ in range(many):
            call()
        return perf_counter() - began

    return run


FIGURES = (
    Figure(
        key="breaker_admit_us",
        title="let through a closed breaker that the fleet shares",
        unit="µs",
        aim="≤ 2 µs",
        against="pybreaker with its Redis storage and purgatory with its Redis repository",
        how=(
            "One process, one thread, a real Redis. The value is the median over blocks of"
            " `RedisBreakers.admit` for a breaker that is closed, the loop around it included; with"
            " `record` of a success beside it, and `BreakerGuard.call` around a function that does"
            " nothing, which is what theirs do as well. While ours are timed, their outcomes are"
            " told to Redis in the background, in the same process. Round trips are counted by the"
            " server."
        ),
        measure=measure,
    ),
)
