"""A plain Celery app in this process, its workers in others, and their Redis."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest
import redis
from celery import Celery

import journal
import warm_process
from polling import PATIENCE, wait_until
from system.conftest import PATH, stop

HERE = Path(__file__).parent


class Worker(NamedTuple):
    process: warm_process.Process | subprocess.Popen[bytes]
    name: str
    log: Path

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def with_stacks(self) -> str:
        """Return its log, at the end of which each of its processes tells where it is."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGUSR2)
            time.sleep(0.5)  # there is no telling when all have written
        return self.text()

    def wait_said(self, words: str) -> None:
        def said() -> bool:
            if words not in self.text() and self.process.poll() is not None:
                pytest.fail(f"{self.name} ended: {self.text()[-3000:]}")
            return words in self.text()

        wait_until(said, f"{self.name} to say {words!r}")


#: Apps of this process: the pools of one that is thrown away warn of connections left open.
_KEPT: list[Celery] = []


class PlainSite:
    """One app under a prefix of its own; ``pool`` is that of its workers."""

    def __init__(self, folder: Path, url: str, *, kind: str, pool: str, letters: str = "") -> None:
        self.folder, self.pool, self.kind = folder, pool, kind
        self.prefix = f"p{uuid.uuid4().hex[:8]}"
        (folder / "journal").touch()
        self.redis = redis.Redis.from_url(url, decode_responses=True)
        self.environment = {
            "PLAIN_KIND": kind,
            "PLAIN_PREFIX": self.prefix,
            "PLAIN_REDIS": url,
            "PLAIN_FOLDER": str(folder),
            "PLAIN_LETTERS": letters,
        }
        self._patch = pytest.MonkeyPatch()
        for name, value in self.environment.items():
            self._patch.setenv(name, value)
        self._patch.syspath_prepend(str(HERE))
        sys.modules.pop("plain_app", None)
        self.tasks = importlib.import_module("plain_app")
        self.app = self.tasks.app
        _KEPT.append(self.app)

    def close(self) -> None:
        self.app.close()
        self.redis.close()
        self._patch.undo()
        sys.modules.pop("plain_app", None)

    # -- workers ---------------------------------------------------------------------------------

    @contextmanager
    def worker(self, *options: str, queue: str = "", slots: int = 2, **environment: str):
        name = f"w{uuid.uuid4().hex[:6]}@here"
        log = self.folder / f"{name}.log"
        command = [
            "celery", "-A", "plain_app", "worker", "--pool", self.pool,
            "--concurrency", str(slots), "--loglevel", "INFO", "--hostname", name,
            "--queues", queue or self.prefix, *options,
        ]  # fmt: skip
        log.touch()
        environment = {**os.environ, **environment, "PYTHONPATH": PATH}
        process = warm_process.begin(command, folder=HERE, environment=environment, log=log)
        worker = Worker(process, name, log)
        try:
            worker.wait_said(" ready.")
            yield worker
        finally:
            stop(process)

    # -- what ran --------------------------------------------------------------------------------

    def journal(self, what: str = "") -> list[dict]:
        lines = journal.records(self.folder / "journal")
        return [line for line in lines if what in {"", line["what"]}]

    def runs_of(self, *results) -> list[dict]:
        ids = {result.id for result in results}
        return [line for line in self.journal() if line["id"] in ids]

    def wait_runs(self, *results, seconds: float = PATIENCE) -> list[dict]:
        wait_until(
            lambda: {line["id"] for line in self.runs_of(*results)} == {r.id for r in results},
            f"{len(results)} tasks to run: {self.runs_of(*results)} did",
            seconds,
        )
        return self.runs_of(*results)

    # -- gates -----------------------------------------------------------------------------------

    @contextmanager
    def closed_gates(self, number: int, **options):
        """Keep *number* slots of a worker busy inside the block; yields their results."""
        name = f"gate-{uuid.uuid4().hex[:6]}"
        gates = [self.tasks.gate.apply_async((name,), **options) for _ in range(number)]
        try:
            self.wait_runs(*gates)
            yield gates
        finally:
            (self.folder / name).touch()
        wait_until(
            lambda: all((self.folder / f"ended-{gate.id}").exists() for gate in gates),
            "the gates to end",
        )

    # -- what Redis holds --------------------------------------------------------------------------

    def lists(self, queue: str) -> list[str]:
        """Return the names of a queue's lists, one for each priority step."""
        return [queue, *(f"{queue}\x06\x16{step}" for step in (3, 6, 9))]

    def waiting(self, queue: str) -> list[dict]:
        """Return the messages of *queue*, that which is fetched next first."""
        return [
            json.loads(raw)
            for name in self.lists(queue)
            for raw in reversed(self.redis.lrange(name, 0, -1))
        ]

    def held(self) -> list[str]:
        """Return the ids of the tasks that workers hold unacknowledged, by either transport."""
        names = self.redis.scan_iter("unacked*", _type="hash")
        values = [value for name in names for value in self.redis.hvals(name)]
        return [_task_id(value) for value in values if f'"{self.prefix}' in value]


def _task_id(held: str) -> str:
    found = json.JSONDecoder().raw_decode(held[held.index("{") :])[0] if "{" in held else {}
    return found.get("headers", {}).get("id", "")
