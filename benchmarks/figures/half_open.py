"""How many calls reach a dependency that is being tried, of a fleet that is eager to call it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import NamedTuple

from harness import servers
from harness.dependency import Dependency, dependency
from harness.figure import Figure, Measured, NotMeasured
from harness.private_redis import private_redis
from harness.worker import BENCHMARKS
from workers.hammer import OPEN_FOR, PROCESSES, THREADS, Blow, pybreaker_at, settings

from angzarr.adapters.redis.breaker import RedisBreakers
from angzarr.adapters.redis.flow_line import FlowLine
from angzarr.resilience.breaker import Permit, Phase

#: Fewer for a quick look while working on the code; the report tells how many there were.
RUNS = int(os.environ.get("BENCH_RUNS", "20"))
RUNS_OF_THEIRS = max(1, RUNS // 4)
PREFIX = "bench"
#: How long all hammer (s): at the open breaker first, then at the half-open one.
LASTS = 3.0
#: The fleet ends soon after the dependency has answered (s).
PATIENCE = 30.0


class Run(NamedTuple):
    """What one run saw: calls that arrived unanswered, calls asked for, and calls made in all."""

    arrived: int
    asked: int
    made: int


def measure() -> Measured:
    """Hammer at fresh breakers, with one probe allowed and with three, and at pybreaker's."""
    with private_redis() as url, dependency() as ill, _fleet(url, ill) as fleet:
        one = [_run(url, ill, fleet, "angzarr", 1) for _ in range(RUNS)]
        three = [_run(url, ill, fleet, "angzarr", 3) for _ in range(RUNS)]
        theirs = [_run(url, ill, fleet, "pybreaker", 1) for _ in range(RUNS_OF_THEIRS)]
    return Measured(
        values=[run.arrived for run in one],
        detail={
            "probes_seen_of_3_allowed": _span([run.arrived for run in three]),
            "probes_seen_pybreaker": _span([run.arrived for run in theirs]),
            "calls_asked_for_a_run": _span([run.asked for run in (*one, *three)]),
            "probes_made_a_run": _span([run.made for run in one]),
            "threads": f"{PROCESSES * THREADS} in {PROCESSES} processes",
            "runs_with_3_allowed": RUNS,
            "runs_of_pybreaker": RUNS_OF_THEIRS,
            "redis": f"{servers.redis_version()}, a server of its own",
        },
    )


def _run(url: str, ill: Dependency, fleet: subprocess.Popen[str], side: str, probes: int) -> Run:
    """Open a breaker, let the fleet loose on it, and count before anything is answered."""
    name = f"dep-{time.monotonic_ns()}"
    ill.turn("mute")
    before = len(ill.calls)
    if side == "angzarr":
        _open(url, name, probes)
    else:
        pybreaker_at(url, PREFIX, name).open()
    until = time.monotonic() + OPEN_FOR.total_seconds() + LASTS
    assert fleet.stdin is not None
    assert fleet.stdout is not None
    print(*Blow(side, name, probes, until), file=fleet.stdin, flush=True)
    time.sleep(max(0.0, until - time.monotonic()))
    arrived = len(ill.calls) - before
    ill.turn("well")
    said = fleet.stdout.readline().split()
    if not said:
        msg = f"the fleet ended with {fleet.wait()}"
        raise NotMeasured(msg)
    asked, made = map(int, said)
    return Run(arrived, asked, made)


def _open(url: str, name: str, probes: int) -> None:
    """Open a breaker of ours as failures do."""
    line = FlowLine(url, prefix=PREFIX)
    breakers = RedisBreakers(line, {name: settings(probes)})
    while isinstance(permit := breakers.admit(name, "failing"), Permit):
        breakers.record(permit, ok=False, took=timedelta(milliseconds=50))
    if breakers.states()[name].phase is not Phase.OPEN:
        msg = f"failures did not open the breaker: {permit}"
        raise NotMeasured(msg)
    line.close()


@contextmanager
def _fleet(url: str, ill: Dependency) -> Iterator[subprocess.Popen[str]]:
    fleet = subprocess.Popen(
        [sys.executable, "-m", "workers.hammer", url, PREFIX, ill.url],
        cwd=BENCHMARKS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield fleet
        fleet.communicate(timeout=PATIENCE)
    finally:
        fleet.kill()
        fleet.wait()


def _span(numbers: list[int]) -> str:
    return f"{min(numbers):,} to {max(numbers):,}"


FIGURES = (
    Figure(
        key="half_open_probes",
        title="probes that reach a dependency in half-open, one allowed",
        unit="probes",
        aim="= 1",
        against="pybreaker with its Redis storage, whose processes each try",
        how=(
            "A breaker is opened by failures. 64 threads in 8 forked processes ask it again and"
            " again, without a pause, before and after it turns half-open. The dependency writes"
            " down every call that arrives and answers none until the threads have stopped."
            f" {RUNS} runs with a breaker of its own each; the one farthest from the aim counts."
        ),
        measure=measure,
    ),
)
