"""A plain Celery app, the workers that a test kills, and what their journal proves."""

from __future__ import annotations

import os
import signal
import uuid
from collections import Counter
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest
import redis
from kombu.exceptions import OperationalError

import journal
import warm_process
from polling import PATIENCE, wait_until
from redis_servers import PrivateRedis
from system.conftest import PATH
from system.killed_app import make
from system.plain_site import Worker

HERE = Path(__file__).parent
#: Tasks that one worker runs at a time, and messages that it holds at most (killed_app.py).
SLOTS = 2
PREFETCH = 4 * SLOTS


class Run(NamedTuple):
    n: int
    what: str
    worker: str
    at: float


class KilledSite:
    """Publishes from this process and looks at *server* past the transport."""

    def __init__(self, folder: Path, server: PrivateRedis, *, lease: float) -> None:
        self.folder, self.server, self.lease = folder, server, lease
        self.file = folder / "journal"
        self.file.touch()
        self.app = make(server.url, lease)
        #: The numbers whose publishing was confirmed.
        self.confirmed: list[int] = []
        self._next = 0

    def publish(self, count: int, seconds: float = 0.003, queue: str = "celery") -> list[int]:
        """Publish *count* tasks of that many *seconds*; returns those that were confirmed."""
        return self._send("work", count, seconds, queue=queue)

    def publish_standing(self, count: int, queue: str = "celery") -> list[int]:
        """Publish *count* tasks that run until `go_on`; returns those that were confirmed."""
        self._gate.unlink(missing_ok=True)
        return self._send("stand", count, queue=queue)

    def go_on(self) -> None:
        """Let all tasks end that stand."""
        self._gate.touch()

    @property
    def _gate(self) -> Path:
        return self.file.with_name("go on")

    def _send(self, task: str, count: int, *args: float, queue: str) -> list[int]:
        before = len(self.confirmed)
        for _ in range(count):
            self._next += 1
            with suppress(OperationalError, redis.RedisError, OSError):
                self.app.send_task(f"killed_app.{task}", (self._next, *args), queue=queue)
                self.confirmed.append(self._next)
        return self.confirmed[before:]

    # -- workers ---------------------------------------------------------------------------------

    @contextmanager
    def workers(self, *pools: str, queues: str = "celery"):
        """One worker for each of *pools*, killed at the end."""
        with ExitStack() as stack:
            workers = [stack.enter_context(self.begun_worker(pool, queues)) for pool in pools]
            for worker in workers:
                worker.wait_said(" ready.")
            yield workers

    @contextmanager
    def begun_worker(self, pool: str, queues: str = "celery"):
        """A worker in a process group of its own, which is not waited for."""
        worker = self._begin(pool, queues)
        try:
            yield worker
        finally:
            with suppress(ProcessLookupError):
                signal_group(worker, signal.SIGKILL)
            worker.process.wait()

    def _begin(self, pool: str, queues: str) -> Worker:
        name = f"w{uuid.uuid4().hex[:6]}@here"
        log = self.folder / f"{name}.log"
        command = [
            "celery", "-A", "killed_app", "worker", "--pool", pool,
            "--concurrency", str(SLOTS), "--loglevel", "INFO", "--hostname", name,
            "--queues", queues, "--without-gossip", "--without-mingle",
        ]  # fmt: skip
        environment = {
            **os.environ,
            "KILLED_URL": self.server.url,
            "KILLED_LEASE": str(self.lease),
            "KILLED_NAME": name,
            "KILLED_JOURNAL": str(self.file),
            "PYTHONPATH": PATH,
        }
        log.touch()
        process = warm_process.begin(command, folder=HERE, environment=environment, log=log)
        return Worker(process, name, log)

    # -- what ran, and what did not ----------------------------------------------------------------

    def runs(self, what: str) -> list[Run]:
        return [Run(**line) for line in journal.records(self.file) if line["what"] == what]

    def ended(self) -> set[int]:
        return {run.n for run in self.runs("ended")}

    def begun(self) -> Counter[int]:
        return Counter(run.n for run in self.runs("begun"))

    def twice(self) -> list[int]:
        return [n for n, times in self.begun().items() if times > 1]

    def wait_begun(self, numbers: list[int]) -> None:
        wait_until(lambda: set(numbers) <= set(self.begun()), f"{numbers} to be begun")

    def wait_ended(self, numbers: list[int], seconds: float = PATIENCE) -> None:
        """Wait until all *numbers* ended and Redis holds nothing, or say what is lost."""

        def over() -> bool:
            return set(numbers) <= self.ended() and not self.waiting() and not self.held()

        with suppress(pytest.fail.Exception):
            wait_until(over, seconds=seconds)
        lost = sorted(set(numbers) - self.ended())
        assert not lost, f"lost {len(lost)}: {lost[:20]}; {self._left()}"
        assert over(), self._left()

    def waiting(self, queue: str = "celery") -> int:
        return self.server.client().llen(queue)

    def held(self) -> int:
        client = self.server.client()
        return sum(client.hlen(key) for key in client.scan_iter("unacked:*", _type="hash"))

    def _left(self) -> str:
        return f"{self.waiting()} wait, {self.held()} are held"


def signal_group(worker: Worker, number: signal.Signals) -> None:
    """Send *number* to a worker and its children."""
    os.killpg(worker.process.pid, number)
