"""Fleet: the worker and the analysis worker of a demo run, in this process or as real ones."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, NoReturn, Protocol

from angzarr.demo.run import Run
from angzarr.errors import AngzarrError, ConfigurationError
from angzarr.wiring.analysis_worker import open_worker

#: Threads of the embedded worker, child processes of a real one.
THREADS: Final = 8
PROCESSES: Final = 4
#: Seconds that a stopped worker may take before it is killed; all its work is done by then.
PATIENCE: Final = 15
#: The app as real workers are given it.
_APP: Final = "angzarr.demo.app"


class WorkerDied(AngzarrError):
    """A worker of the demo ended before its work did."""


class Fleet(Protocol):
    """What handles and analyses the events."""

    def start(self) -> None:
        """Start everything; raises ConfigurationError where it cannot work."""

    def check(self) -> None:
        """Raise WorkerDied if something ended by itself."""

    def kill(self) -> None:
        """Kill the worker in the middle of whatever it does, and start another one."""

    def stop(self) -> None:
        """Stop everything; safe to call twice."""


class EmbeddedFleet:
    """A worker with a pool of threads and an analysis worker, both in threads of this process."""

    def __init__(self, app: Any, run: Run) -> None:
        self._app = app
        self._run = run
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._errors: list[Exception] = []

    def start(self) -> None:
        """Build both here, where an error is heard, and run them in threads."""
        from celery.platforms import SecurityWarning

        _log_to(self._run)
        warnings.simplefilter("ignore", SecurityWarning)  # root in a container tries this out
        worker = self._app.Worker(
            hostname=f"{self._run.name}@embedded",
            pool="threads",
            concurrency=THREADS,
            queues=[self._run.name],
            loglevel="WARNING",
            quiet=True,
            without_heartbeat=True,
            without_mingle=True,
            without_gossip=True,
        )
        for name, work in (("worker", worker.start), ("analysis", self._analyse)):
            thread = threading.Thread(target=work, name=f"demo-{name}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def _analyse(self) -> None:
        try:
            with open_worker(self._app, self._app.dead_letter_domains()) as worker:
                worker.run(self._stop)
        except Exception as error:  # noqa: BLE001 - told by the thread that watches
            self._errors.append(error)

    def check(self) -> None:
        """Raise WorkerDied if a thread ended."""
        for thread in self._threads:
            if not thread.is_alive():
                msg = f"{thread.name} ended: {self._errors or self._run.path / 'worker.log'}"
                raise WorkerDied(msg)

    def kill(self) -> NoReturn:
        """Refuse: it would be the demo itself."""
        msg = "a worker in the demo's own process cannot be killed"
        raise ConfigurationError(msg)

    def stop(self) -> None:
        """Let the worker's own loop stop it, as a signal would."""
        from celery.worker import state

        if not self._threads:
            return
        self._stop.set()
        state.should_stop = os.EX_OK
        for thread in self._threads:
            thread.join(PATIENCE)
        state.should_stop = None
        self._threads = []
        self._app.end_work()


class ProcessFleet:
    """A Celery worker with child processes and `angzarr dlq analyze`, as a user starts them."""

    def __init__(self, run: Run, environment: Mapping[str, str]) -> None:
        self._run = run
        self._environment = dict(environment)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start both; what they say goes into files in the run's folder."""
        self._start_worker()
        self._spawn("analysis", "angzarr", "-A", _APP, "dlq", "analyze")

    def _start_worker(self) -> None:
        self._spawn(
            "worker", "celery", "-A", _APP, "--quiet", "worker", "--pool", "prefork",
            "--concurrency", str(PROCESSES), "--queues", self._run.name,
            "--hostname", f"{self._run.name}@%h", "--loglevel", "WARNING",
            "--without-heartbeat", "--without-mingle", "--without-gossip",
        )  # fmt: skip

    def _spawn(self, name: str, module: str, *arguments: str) -> None:
        with (self._run.path / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-m", module, *arguments],
                env=self._environment,
                cwd=self._run.path,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the demo, which stops them
            )

    def check(self) -> None:
        """Raise WorkerDied with the last words of a process that ended."""
        for name, process in self._processes.items():
            if process.poll() is not None:
                log = self._run.path / f"{name}.log"
                said = log.read_text(errors="replace").strip().splitlines()[-1:] or ["nothing"]
                msg = (
                    f"the {name} process ended with {process.returncode}: {said[0]} (more in {log})"
                )
                raise WorkerDied(msg)

    def kill(self) -> None:
        """Kill the worker with its children, as the kernel does when memory is short."""
        _kill(self._processes["worker"])
        self._start_worker()

    def stop(self) -> None:
        """Ask both to end, then insist."""
        for process in self._processes.values():
            with suppress(ProcessLookupError):
                process.terminate()
        for process in self._processes.values():
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                _kill(process)
        self._processes = {}


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process with its children: they share a session of their own."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, 9)
    process.wait()


def _log_to(run: Run) -> None:
    """Send all log lines into a file: the terminal belongs to the table."""
    root = logging.getLogger()
    root.handlers[:] = [logging.FileHandler(run.path / "worker.log", encoding="utf-8")]
    root.setLevel(logging.WARNING)
