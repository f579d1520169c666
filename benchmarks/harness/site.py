"""Site: a side's queue, its folder, and the processes that publish to it and consume from it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kombu import Connection

from harness.figure import NotMeasured
from harness.worker import BENCHMARKS, Worker

#: Longer than anything takes on a machine that is worth measuring on.
PATIENCE = 120.0
#: Instead of a pool: processes of `angzarr worker`.
PROCESSES = "processes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of a pair: the app's module and what its processes find in their environment."""

    app: str
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What both sides have to do, and with how much: events, pool, prefetch multiplier."""

    broker: str
    queue: str
    events: int
    pool: str
    concurrency: int
    prefetch: int


class Site:
    """One side at work. The moments and numbers of its handlers are files in `folder`."""

    def __init__(self, side: Side, load: Load, folder: Path) -> None:
        self.side, self.load, self.folder = side, load, folder
        self.environment = {
            **os.environ,
            "BENCH_BROKER": load.broker,
            "BENCH_QUEUE": load.queue,
            "BENCH_PREFETCH": str(load.prefetch),
            "BENCH_FOLDER": str(folder),
            "PYTHONPATH": os.pathsep.join(
                filter(None, (str(BENCHMARKS), os.environ.get("PYTHONPATH")))
            ),
            **side.environment,
        }

    def fill(self) -> None:
        """Publish all events through the app's own door and wait until they are queued."""
        self.run("workers.publish", self.side.app, str(self.load.events), BENCH_UNCONFIRMED="1")
        self._wait_until_queued()

    def run(self, module: str, *arguments: str, **environment: str) -> str:
        """Run a program of ours to its end and return what it printed; its errors are shown."""
        ran = subprocess.run(
            [sys.executable, "-m", module, *arguments], env={**self.environment, **environment},
            cwd=BENCHMARKS, check=False, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        if ran.returncode:
            msg = f"{module} ended with {ran.returncode}"
            raise NotMeasured(msg)
        return ran.stdout

    def start(self, *, prefetch: int | None = None) -> Worker:
        """Start one more worker and return at once; the caller ends it."""
        number = str(self.load.concurrency)
        program, size = "celery", ["-P", self.load.pool, "-c", number]
        if self.load.pool == PROCESSES:
            program, size = "angzarr", ["--processes", number]
        command = [
            sys.executable, "-m", program, "-A", self.side.app, "worker", *size,
            "-Q", self.load.queue, "-l", "WARNING",
            "--without-gossip", "--without-mingle", "--without-heartbeat",
        ]  # fmt: skip
        multiplier = str(self.load.prefetch if prefetch is None else prefetch)
        environment = {
            **self.environment,
            "BENCH_PREFETCH": multiplier,
            "BENCH_SUPERVISED": "1" if self.load.pool == PROCESSES else "",
        }
        return Worker(command, environment, self.folder / "log")

    @contextmanager
    def worker(self) -> Iterator[Worker]:
        """Start a worker and stop it at the end."""
        worker = self.start()
        try:
            yield worker
        finally:
            worker.stop()

    def queued(self) -> int:
        """Return how many messages the broker counts as ready."""
        with Connection(self.load.broker) as connection, connection.channel() as channel:
            return int(channel.queue_declare(self.load.queue, passive=True).message_count)

    def _wait_until_queued(self) -> None:
        """Return once the broker counts every event as ready: publishing did not wait for it."""
        deadline = time.monotonic() + PATIENCE
        while (ready := self.queued()) < self.load.events:
            if time.monotonic() > deadline:
                msg = f"only {ready} of {self.load.events} events reached the queue"
                raise NotMeasured(msg)
            time.sleep(0.1)


@contextmanager
def site(side: Side, load: Load) -> Iterator[Site]:
    """Lend a site with a fresh folder, removed at the end."""
    with tempfile.TemporaryDirectory(prefix="angzarr-bench-") as folder:
        yield Site(side, load, Path(folder))
