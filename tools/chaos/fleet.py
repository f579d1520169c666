"""Fleet: workers as a service manager keeps them, and the analysis worker beside them.

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
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from chaos.fates import LETHAL_QUEUE, QUEUE
from chaos.hardships import CLOCK, PLAIN, STARVED, Birth, read_log, spawn
from family import Family, is_alive

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
    #: How many processes `angzarr worker` has, each a consumer of its own; 0: `celery worker`.
    processes: int = 0


class Death(NamedTuple):
    """A worker that ended though nobody told it to, or did not: when that was noticed, and how."""

    at: float
    worker: str
    text: str
    #: A worker that is refused a process may end; its supervisor starts another.
    allowed: bool = False


SLOTS = (
    Slot("p1", "prefork", 2, f"{QUEUE},{LETHAL_QUEUE}"),
    Slot("s1", "solo", 1, f"{QUEUE},{LETHAL_QUEUE}", processes=2),
    Slot("t1", "threads", 4, QUEUE, processes=2),
    Slot("c1", "coroutines", 8, QUEUE, processes=1),
)
ANALYST = Slot("analyst", "", 0, "")


@dataclass(slots=True, eq=False)
class Worker:
    """One worker: the process that was started, and all that it has started."""

    name: str
    slot: Slot
    process: subprocess.Popen[bytes]
    log: Path
    family: Family = field(init=False)
    #: It was told to end, or killed: no surprise.
    ending: bool = False
    frozen: bool = False
    #: Until then it may end by itself, by the monotonic clock: it is refused what it needs.
    may_end_until: float = -math.inf
    began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.family = Family(self.process.pid)

    @property
    def supervised(self) -> bool:
        """Whether each of its processes is a consumer of its own, below a fork server."""
        return self.slot.processes > 0

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

    def servers(self) -> list[int]:
        """Its fork servers, the newest last; none in a worker that has no supervisor."""
        return self.family.children() if self.supervised else []

    def pool(self) -> list[int]:
        """The processes that run its handlers, or that are to."""
        if not self.supervised:
            return self.family.children()
        return [pid for server in self.servers() for pid in self.family.children(server)]

    def signal(self, number: signal.Signals) -> None:
        """Send *number* to the process that was started."""
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, number)

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
        self.family.kill()
        self.process.wait(20)

    def tell_where(self) -> None:
        """Let its processes write the stacks of all their threads into its log.

        A supervisor has not loaded the app, and would end of it.
        """
        for pid in self.family.pids():
            if not (self.supervised and pid == self.process.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGUSR2)
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
                "CHAOS_ASYNC": "1" if slot.pool == "coroutines" else "",
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

    def victims(self, target: int, *, supervised: bool | None = None) -> list[Worker]:
        """Return the workers that are up, *supervised* or not if given, *target*'s first."""
        slots = [slot for slot in SLOTS if supervised in (None, slot.processes > 0)]
        turned = slots[target % len(slots) :] + slots[: target % len(slots)]
        with self._lock:
            workers = [self.workers[slot.name] for slot in turned]
        return [worker for worker in workers if worker.running and worker.ready]

    def readiness(self) -> dict[str, int]:
        """Return the workers not told to end, and how many nodes each is; 0: not ready."""
        with self._lock:
            workers = [self.workers[slot.name] for slot in SLOTS]
        return {
            one.name: max(1, one.slot.processes) if one.ready else 0
            for one in workers
            if one.running and not one.ending
        }

    def apart(self) -> frozenset[str]:
        """Return the names of all workers so far whose processes are consumers of their own."""
        return frozenset(
            f"{slot.name}.{number}"
            for slot in SLOTS
            for number in range(1, self._numbers[slot.name] + 1)
            if slot.processes
        )

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
        worker.family.pids()  # so that what it leaves behind is known
        try:
            worker.process.wait(STOP_PATIENCE)
        except subprocess.TimeoutExpired:
            worker.tell_where()
            worker.kill()
            text = f"{worker.name} did not end within {STOP_PATIENCE:.0f} s of SIGTERM"
            self.deaths.append(Death(time.monotonic(), worker.name, text))
            return False
        worker.family.kill()  # children it left behind
        return True

    def wait_gone(self, worker: Worker, pids: Collection[int], after: str) -> bool:
        """Wait for processes of *worker* that end *after* a fault; False if they were killed."""
        deadline = time.monotonic() + STOP_PATIENCE
        while left := [pid for pid in pids if is_alive(pid)]:
            if time.monotonic() > deadline:
                worker.tell_where()
                for pid in left:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                text = f"{len(left)} processes of {worker.name} went on {STOP_PATIENCE:.0f} s after"
                self.deaths.append(Death(time.monotonic(), worker.name, f"{text} {after}"))
                return False
            time.sleep(0.1)
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
                    worker.family.kill()  # children it left
            if dead and not self._over.wait(RESTARTED_AFTER):
                for worker in dead:
                    self.replace(worker)


def _command(slot: Slot, name: str) -> list[str]:
    if slot is ANALYST:
        return [sys.executable, "-m", "angzarr", "-A", "chaos.app", "dlq", "analyze"]
    program, size = "celery", ["--pool", slot.pool, "--concurrency", str(slot.concurrency)]
    if slot.processes:
        at_once = [] if slot.pool == "solo" else [f"--{slot.pool}", str(slot.concurrency)]
        program, size = "angzarr", ["--processes", str(slot.processes), *at_once]
    return [
        sys.executable, "-m", program, "-A", "chaos.app", "worker", *size,
        "--queues", slot.queues, "--loglevel", "INFO",
        "--hostname", f"{name}@chaos", "--without-mingle", "--without-gossip",
    ]  # fmt: skip
