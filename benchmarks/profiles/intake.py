"""What one letter costs from Kafka into PostgreSQL: `python benchmarks/profiles/intake.py`.

The analysis worker's duty files, decides and lets go of letters that wait in a topic, as the figure
`analysis_vs_bare` has it. Told are, per letter: CPU time of this process (all its threads, those of
Kafka's client included) and of the server process behind its connection; calls of Python functions;
and the statements of a batch, COPY not counted. The first batch is left out: it connects, imports
and compiles. Run it in another checkout, with the same --domain, to compare.

    --runs N       runs, of which the least CPU time is told (3)
    --letters N    letters of a run (5,000)
    --domain NAME  read what an earlier run put there; it is named in each answer
    --profile      cProfile of one run more, by own time
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import sys
import time
import uuid
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[1]))

from bare import kafka
from harness import intakes, servers
from harness.letter_rates import fill
from sqlalchemy import event, text

from angzarr.adapters.kafka.dead_letters import KafkaDeadLetterQueue
from angzarr.adapters.kafka.fetched_messages import FetchedAhead
from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.ledger.database import LedgerDatabase


class Took(NamedTuple):
    """Per letter: microseconds of CPU here and in the server, statements a batch, letters/s."""

    here: float
    server: float
    statements: float
    rate: float


def run(domain: str, letters: int, profile: cProfile.Profile | None = None) -> Took:
    """File *letters* of *domain* into a fresh ledger."""
    brokers, statements = servers.address(servers.KAFKA), [0]
    group = f"bench-{uuid.uuid4()}"
    with servers.database() as url, closing(KafkaDeadLetterQueue(brokers, group=group)) as queue:
        engine = build_engine(url)
        duty = intakes.intake(queue, LedgerDatabase(engine), domain)
        taken = 0
        while not taken:
            taken = duty.turn(timedelta(seconds=5))
        first = taken
        pids = _backends(engine)

        @event.listens_for(engine, "before_cursor_execute")
        def count(*_given: Any) -> None:
            statements[0] += 1

        turns, began = 0, time.perf_counter()
        there, here = _cpu(pids), time.process_time()
        if profile:
            profile.enable()
        while taken < letters:
            taken += duty.turn(timedelta(seconds=5))
            turns += 1
        if profile:
            profile.disable()
        here, there = time.process_time() - here, _cpu(pids) - there
        span, filed = time.perf_counter() - began, taken - first
        engine.dispose()
    return Took(here / filed * 1e6, there / filed * 1e6, statements[0] / turns, filed / span)


def _backends(engine: Any) -> list[int]:
    """The server processes of our pooled connections."""
    with engine.connect() as connection:
        return [connection.execute(text("SELECT pg_backend_pid()")).scalar_one()]


def _cpu(pids: list[int]) -> float:
    """Seconds of CPU that *pids* have used; NaN where they are not of this machine."""
    ticks = 0
    for pid in pids:
        try:
            told = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return float("nan")
        ticks += int(told[11]) + int(told[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--letters", type=int, default=5000)
    parser.add_argument("--domain")
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    domain = given.domain
    if not domain:
        with kafka.backend() as backend:
            domain = fill(backend, given.letters)
    tooks = [run(domain, given.letters) for _ in range(given.runs)]
    least = min(tooks, key=lambda took: took.here)
    profile = cProfile.Profile()
    with mock.patch.object(FetchedAhead, "begin", create=True):  # it sees one thread alone
        run(domain, given.letters, profile)
    calls = sum(one.callcount for one in profile.getstats() if not isinstance(one.code, str))
    print(
        f"{least.here:.0f} us here, {least.server:.0f} us in the server,"
        f" {calls / given.letters:.0f} calls, {least.statements:.1f} statements a batch,"
        f" {least.rate:.0f} letters/s  (--domain {domain})"
    )
    if given.profile:
        pstats.Stats(profile).sort_stats("tottime").print_stats(60)


if __name__ == "__main__":
    main()
