"""Fleet: worker processes as a supervisor keeps them, and the analysis worker beside them.

Each *slot* has one worker at a time; its successors are named p1.1, p1.2, … A worker that ends
though nobody told it to is started again and remembered: that is a breach, as is one that does not
end when it is told to.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from chaos.fates import LETHAL_QUEUE, QUEUE
from chaos.hardships import CLOCK, PLAIN, STARVED, Birth, read_log, spawn

#: Seconds that a worker may take to be ready, and to end after SIGTERM before it is killed.
START_PATIENCE, STOP_PATIENCE = 60.0, 40.0
#: Seconds before a worker that ended by itself is started again.
RESTARTED_AFTER = 1.0
#: Seconds in which a worker may still end of what it was refused, though it has it again.
RECOVERED_AFTER = 5.0


class NotRunning(Exception):
    """A run that could not be made; the text says why."""


class Slot(NamedTuple):
    """One place in the fleet: the pool of its workers and what they consume from."""

    name: str
    pool: str
    concurrency: int
    queues: str


class Death(NamedTuple):
    """A worker that ended though nobody told it to, or did not: when that was noticed, and how."""

    at: float
    worker: str
    text: str
    #: A worker that is refused a process may end; its supervisor starts another.
    allowed: bool = False


SLOTS = (
    Slot("p1", "prefork", 2, f"{QUEUE},{LETHAL_QUEUE}"),
    Slot("p2", "prefork", 2, f"{QUEUE},{LETHAL_QUEUE}"),
    Slot("t1", "threads", 4, QUEUE),
)
ANALYST = Slot("analyst", "", 0, "")


@dataclass(slots=True, eq=False)
class Worker:
    """One worker process and all its children, which share a process group."""

    name: str
    slot: Slot
    process: subprocess.Popen[bytes]
    log: Path
    #: It was told to end, or killed: no surprise.
    ending: bool = False
    frozen: bool = False
    #: Until then it may end by itself, by the monotonic clock: it is refused what it needs.
    may_end_until: float = -math.inf
    began: float = field(default_factory=time.monotonic)

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    @property
    def ready(self) -> bool:
        return self.log.with_suffix(".ready").exists()

    @property
    def starved(self) -> Path:
        """The file that says that it gets no thread and no process."""
        return self.log.with_suffix(".starved")

    def signal(self, number: signal.Signals, *, group: bool = False) -> None:
        """Send *number* to the parent process, or to the *group*."""
        with suppress(ProcessLookupError):
            (os.killpg if group else os.kill)(self.process.pid, number)

    @contextmanager
    def in_need(self) -> Iterator[None]:
        """Let it end by itself meanwhile, and shortly after: it is refused what it needs."""
        self.may_end_until = math.inf
        try:
            yield
        finally:
            self.may_end_until = time.monotonic() + RECOVERED_AFTER

    def death(self, at: float) -> Death:
        """Tell how it ended by itself, which was noticed *at*."""
        text = f"{self.name} ended with {self.process.returncode} by itself: {self.last_words()}"
        return Death(at, self.name, text, allowed=at <= self.may_end_until)

    def kill(self) -> None:
        """SIGKILL all its processes and wait for the parent."""
        self.ending = True
        self.signal(signal.SIGKILL, group=True)
        self.process.wait(20)

    def tell_where(self) -> None:
        """Let its processes write the stacks of all their threads into its log."""
        self.signal(signal.SIGUSR2, group=True)
        time.sleep(0.5)

    def last_words(self) -> str:
        lines = read_log(self.log).decode(errors="replace").strip().splitlines()
        return " / ".join(line.strip() for line in lines[-3:])[:600] or "it said nothing"


class Fleet:
    """Starts, ends and watches workers; *environment* is theirs."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._environment = environment
        self._lock = threading.RLock()
        self._numbers = dict.fromkeys([slot.name for slot in (*SLOTS, ANALYST)], 0)
        self.workers: dict[str, Worker] = {}
        #: Workers that ended by themselves, or had to be killed when they should end.
        self.deaths: list[Death] = []
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="chaos-supervisor", daemon=True)

    def start(self) -> None:
        """Start all and wait until they are ready; raises NotRunning with their last words."""
        for slot in (*SLOTS, ANALYST):
            self.begin(slot)
        deadline = time.monotonic() + START_PATIENCE
        for slot in SLOTS:
            worker = self.workers[slot.name]
            while not worker.ready:
                if not worker.running or time.monotonic() > deadline:
                    raise NotRunning(f"{worker.name} did not start: {worker.last_words()}")
                time.sleep(0.1)
        self._watcher.start()

    def begin(self, slot: Slot, birth: Birth = PLAIN) -> Worker:
        """Start the next worker of *slot*; it is not waited for."""
        with self._lock:
            self._numbers[slot.name] += 1
            name = f"{slot.name}.{self._numbers[slot.name]}"
            log = self._folder / f"{name}.log"
            environment = {
                **self._environment,
                CLOCK: str(birth.clock),
                "CHAOS_WORKER": name,
                "CHAOS_LIMITS": "0" if slot.pool == "threads" else "1",
                STARVED: str(log.with_suffix(".starved")),
            }
            ready = log.with_suffix(".ready")
            process = spawn(
                _command(slot, name), log, cwd=self._folder, env=environment,
                broken=ready.exists if birth.mute else None,
            )  # fmt: skip
            self.workers[slot.name] = worker = Worker(name, slot, process, log)
            return worker

    def replace(self, worker: Worker, birth: Birth = PLAIN) -> Worker:
        """Start the successor of *worker*, which is ending or dead."""
        worker.ending = True
        return self.begin(worker.slot, birth)

    def victims(self, target: int, pool: str = "") -> list[Worker]:
        """Return the workers that are up, of *pool* if it is given, that of *target* first."""
        slots = [slot for slot in SLOTS if not pool or slot.pool == pool]
        turned = slots[target % len(slots) :] + slots[: target % len(slots)]
        with self._lock:
            workers = [self.workers[slot.name] for slot in turned]
        return [worker for worker in workers if worker.running and worker.ready]

    def readiness(self) -> dict[str, bool]:
        """Return the names of the workers that were not told to end, and whether they are ready."""
        with self._lock:
            workers = [self.workers[slot.name] for slot in SLOTS]
        return {one.name: one.ready for one in workers if one.running and not one.ending}

    def end(self) -> float:
        """Stop all in order; return how many seconds the slowest worker took."""
        self._over.set()
        self._watcher.join()
        began = time.monotonic()
        leaving = [worker for worker in self.workers.values() if worker.running]
        for worker in leaving:
            worker.ending = True
            worker.signal(signal.SIGTERM)
        slowest = 0.0
        for worker in leaving:
            self.wait_end(worker)
            slowest = max(slowest, time.monotonic() - began)
        return slowest

    def wait_end(self, worker: Worker) -> bool:
        """Wait for a worker that was asked to end; return False if it had to be killed."""
        try:
            worker.process.wait(STOP_PATIENCE)
        except subprocess.TimeoutExpired:
            worker.tell_where()
            worker.kill()
            text = f"{worker.name} did not end within {STOP_PATIENCE:.0f} s of SIGTERM"
            self.deaths.append(Death(time.monotonic(), worker.name, text))
            return False
        worker.signal(signal.SIGKILL, group=True)  # children it left behind
        return True

    def tell_where(self) -> None:
        """Let all write their stacks into their logs: they should be at rest and are not."""
        for worker in self.workers.values():
            if worker.running and worker.slot is not ANALYST:
                worker.tell_where()

    def kill_all(self) -> None:
        """End whatever still runs; for the way out."""
        self._over.set()
        for worker in self.workers.values():
            worker.kill()

    def _watch(self) -> None:
        while not self._over.wait(0.2):
            with self._lock:
                dead = [w for w in self.workers.values() if not w.ending and not w.running]
                for worker in dead:
                    worker.ending = True
                    self.deaths.append(worker.death(time.monotonic()))
                    worker.signal(signal.SIGKILL, group=True)  # children it left
            if dead and not self._over.wait(RESTARTED_AFTER):
                for worker in dead:
                    self.replace(worker)


def _command(slot: Slot, name: str) -> list[str]:
    if slot is ANALYST:
        return [sys.executable, "-m", "angzarr", "-A", "chaos.app", "dlq", "analyze"]
    return [
        sys.executable, "-m", "celery", "-A", "chaos.app", "worker", "--pool", slot.pool,
        "--concurrency", str(slot.concurrency), "--queues", slot.queues, "--loglevel", "INFO",
        "--hostname", f"{name}@chaos", "--without-mingle", "--without-gossip",
    ]  # fmt: skip
