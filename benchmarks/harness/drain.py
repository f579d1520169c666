"""Drain: how fast a worker empties a queue that was filled before it started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kombu import Connection
from workers.stamps import Stamps

from harness.book import CHECKOUT
from harness.figure import NotMeasured
from harness.pairs import middle_rate

BENCHMARKS = CHECKOUT / "benchmarks"
#: Longer than any drain takes on a machine that is worth measuring on.
PATIENCE = 120.0
#: A worker that was asked to stop and has nothing to do needs no longer.
STOPS_WITHIN = 15.0


class DrainFailed(NotMeasured):
    """Not every event was handled, or a process broke off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of a pair: the app's module and what its processes find in their environment."""

    app: str
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What both sides have to do."""

    broker: str
    queue: str
    events: int
    pool: str
    concurrency: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """Events per second over the middle 98 %, and what the worker wrote to its log."""

    rate: float
    log: str


def drain(side: Side, load: Load) -> Drained:
    """Fill the queue, start a worker, wait until every event ran, and stop it.

    The moments are those at which handlers start. Raises DrainFailed unless every event ran.
    """
    with tempfile.TemporaryDirectory(prefix="angzarr-bench-") as folder:
        stamps = Stamps.create(Path(folder) / "stamps", load.events)
        environment = _environment(side, load, Path(folder))
        _fill(side, load, environment)
        log = Path(folder) / "log"
        with _worker(side, load, environment, log) as worker:
            moments = _handled(stamps, load.events, worker, log)
        return Drained(rate=middle_rate(moments), log=log.read_text(errors="replace"))


def _environment(side: Side, load: Load, folder: Path) -> dict[str, str]:
    ours = {
        "BENCH_BROKER": load.broker,
        "BENCH_QUEUE": load.queue,
        "BENCH_STAMPS": str(folder / "stamps"),
        "PYTHONPATH": str(BENCHMARKS),
    }
    return {**os.environ, **ours, **side.environment}


def _fill(side: Side, load: Load, environment: Mapping[str, str]) -> None:
    subprocess.run(
        [sys.executable, "-m", "workers.publish", side.app, str(load.events)],
        env={**environment, "BENCH_UNCONFIRMED": "1"}, cwd=BENCHMARKS, check=True,
    )  # fmt: skip
    _wait_until_queued(load)


def _wait_until_queued(load: Load) -> None:
    """Return once the broker counts every event as ready: publishing did not wait for it."""
    deadline = time.monotonic() + PATIENCE
    with Connection(load.broker) as connection, connection.channel() as channel:
        while (
            ready := channel.queue_declare(load.queue, passive=True).message_count
        ) < load.events:
            if time.monotonic() > deadline:
                msg = f"only {ready} of {load.events} events reached the queue"
                raise DrainFailed(msg)
            time.sleep(0.1)


def _ready(channel: Any, queue: str) -> int:
    return int(channel.queue_declare(queue, passive=True).message_count)


@contextmanager
def _worker(
    side: Side, load: Load, environment: Mapping[str, str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    command = [
        sys.executable, "-m", "celery", "-A", side.app, "worker", "-P", load.pool,
        "-c", str(load.concurrency), "-Q", load.queue, "-l", "WARNING",
        "--without-gossip", "--without-mingle", "--without-heartbeat",
    ]  # fmt: skip
    with log.open("wb") as output:
        worker = subprocess.Popen(
            command, env=dict(environment), cwd=BENCHMARKS,
            stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
    try:
        yield worker
    finally:
        _stop(worker)


def _stop(worker: subprocess.Popen[bytes]) -> None:
    """Ask it to stop; what does not is killed with all its children (its own process group)."""
    worker.terminate()
    try:
        worker.wait(STOPS_WITHIN)
    except subprocess.TimeoutExpired:
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()


def _handled(
    stamps: Stamps, events: int, worker: subprocess.Popen[bytes], log: Path
) -> list[float]:
    deadline = time.monotonic() + PATIENCE
    while len(moments := stamps.seconds()) < events:
        if worker.poll() is not None or time.monotonic() > deadline:
            tail = log.read_text(encoding="utf-8", errors="replace")[-2000:]
            msg = f"{len(moments)} of {events} events were handled by {worker.args!r}:\n{tail}"
            raise DrainFailed(msg)
        time.sleep(0.25)
    return moments
