"""Worker: a Celery worker that a figure starts, watches, stops or kills with all its children."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from harness.book import CHECKOUT
from harness.figure import NotMeasured

BENCHMARKS = CHECKOUT / "benchmarks"
#: A worker that was asked to stop and has nothing to do needs no longer.
STOPS_WITHIN = 15.0
#: Two cores that are busy otherwise need about 5 s.
STARTS_WITHIN = 60.0


class WorkerEnded(NotMeasured):
    """A worker ended that should have run on; the text has the end of its log."""


class Worker:
    """A worker process and all that it started, in a session of their own or not."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self._log = log
        self._ready = Path(environment["BENCH_FOLDER"])
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command, env=dict(environment), cwd=BENCHMARKS,
                stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
        #: Of the parent; also the number of the process group, which its children share.
        self.pid = self._process.pid

    def wait_ready(self) -> None:
        """Return once it consumes; raises WorkerEnded."""
        deadline = time.monotonic() + STARTS_WITHIN
        while not (self._ready / f"ready-{self.pid}").exists():
            self.check()
            if time.monotonic() > deadline:
                msg = f"a worker was not ready within {STARTS_WITHIN:g} s:\n{self.log()[-2000:]}"
                raise NotMeasured(msg)
            time.sleep(0.02)

    def check(self) -> None:
        """Raise WorkerEnded unless it still runs."""
        if self._process.poll() is not None:
            msg = f"a worker ended with {self._process.returncode}:\n{self.log()[-2000:]}"
            raise WorkerEnded(msg)

    def log(self) -> str:
        """Return all that it wrote."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def cpu_seconds(self) -> float:
        """Return the processor time that the living threads of its processes have used."""
        return sum(_run_ns(process) for process in self._family()) / 1e9

    def pss_mib(self) -> float:
        """Return the memory of its processes, each shared page counted once."""
        return self._memory_mib("Pss")

    def child_pss_mib(self) -> list[float]:
        """The memory of each of its processes that has no child of its own: they run handlers."""
        return [_memory_kib(process, "Pss") / 1024 for process in self._childless()]

    def rss_mib(self) -> float:
        """Return the memory of its processes, shared pages counted in each."""
        return self._memory_mib("Rss")

    def stop(self) -> None:
        """Ask it to stop; what does not within STOPS_WITHIN is killed."""
        self._process.terminate()
        try:
            self._process.wait(STOPS_WITHIN)
        except subprocess.TimeoutExpired:
            self.kill()

    def asked_to_stop(self, patience: float) -> float:
        """Send SIGTERM to its parent process alone; return the seconds until that has ended.

        What has not ended after *patience* seconds counts as if it ended then.
        """
        began = time.monotonic()
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(patience)
        return time.monotonic() - began

    def kill(self) -> float:
        """SIGKILL all its processes at once, wait until they are gone, and return the moment."""
        family, moment = list(self._family()), time.monotonic()
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        for process in family:  # some have a session of their own
            with suppress(ProcessLookupError):
                os.kill(int(process.name), signal.SIGKILL)
        self._process.wait()
        while any(_alive(process) for process in {*family, *self._family()}):
            time.sleep(0.005)
        return moment

    def _memory_mib(self, what: str) -> float:
        return sum(_memory_kib(process, what) for process in self._family()) / 1024

    def _childless(self) -> list[Path]:
        """Those of its processes that no other one of them names as its parent."""
        family = list(self._family())
        parents = set[str]()
        for process in family:
            with suppress(FileNotFoundError, ProcessLookupError):
                parents.add(_after_the_name(process / "stat")[1])
        return [process for process in family if process.name not in parents]

    def _family(self) -> Iterator[Path]:
        """Yield /proc/PID of each living process of the session, and of what these started."""
        parents: dict[int, tuple[int, Path]] = {}
        family: set[int] = set()
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(FileNotFoundError, ProcessLookupError):
                state, parent, _, session, *_ = _after_the_name(process / "stat")
                if state not in "ZX":
                    parents[int(process.name)] = int(parent), process
                    if session == str(self.pid):
                        family.add(int(process.name))
        while more := {one for one in parents.keys() - family if parents[one][0] in family}:
            family |= more
        yield from (parents[one][1] for one in family)


def _alive(process: Path) -> bool:
    with suppress(FileNotFoundError, ProcessLookupError):
        return _after_the_name(process / "stat")[0] not in "ZX"
    return False


def _run_ns(process: Path) -> int:
    """Return the time on a processor of all threads; none of a process that has just ended."""
    total = 0
    for thread in process.glob("task/*/schedstat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            total += int(thread.read_text().split()[0])
    return total


def _memory_kib(process: Path, what: str) -> int:
    """Return a line of the memory's sums; nothing of a process that has just ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        for line in (process / "smaps_rollup").read_text().splitlines():
            if line.startswith(f"{what}:"):
                return int(line.split()[1])
    return 0


def _after_the_name(stat: Path) -> list[str]:
    return stat.read_text().rpartition(")")[2].split()
