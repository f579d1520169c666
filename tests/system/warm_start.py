"""Celery's command in processes that need not import it: forks of one that has.

The imports are most of what a short worker computes. Each fork is as the command line would start
it: a session of its own, its own environment, log and folder, and the process here is its parent.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import runpy
import signal
import subprocess
import sys
import time
from functools import cache
from importlib import import_module
from pathlib import Path

#: What every worker imports, and none of it reads the environment or starts a thread.
IMPORTED = (
    "celery.bin.celery", "celery.apps.worker", "celery.worker.consumer",
    "celery.concurrency.prefork", "kombu.transport.pyamqp", "angzarr.app.worker",
    "angzarr.app.projections", "angzarr.adapters.celery.shutdown.shutdown",
)  # fmt: skip
#: Linux: orphans of our descendants become our children.
PR_SET_CHILD_SUBREAPER = 36


def begin(
    arguments: list[str], *, folder: Path, environment: dict[str, str], log: Path
) -> Worker | subprocess.Popen[bytes]:
    """Begin `celery ARGUMENTS…` in *folder*; what it says goes to the end of *log*."""
    if {"gevent", "eventlet"} & {*arguments}:  # they change the libraries before the imports
        command = [sys.executable, "-m", "celery", *arguments]
        with log.open("ab") as said:
            return subprocess.Popen(
                command, cwd=folder, env=environment, stdout=said, stderr=said,
                start_new_session=True,
            )  # fmt: skip
    order = {"arguments": arguments, "folder": str(folder), "log": str(log)}
    source, prctl = _source(), ctypes.CDLL(None).prctl
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        source.stdin.write(json.dumps(order | {"environment": environment}).encode() + b"\n")
        source.stdin.flush()
        return Worker(int(source.stdout.readline()))
    finally:
        prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


class Worker:
    """A child of this process, with those methods of `subprocess.Popen` that tests need."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float = float("inf")) -> int:
        deadline = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("celery", timeout)
            time.sleep(0.01)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@cache
def _source() -> subprocess.Popen[bytes]:
    """The process that has imported everything and forks; it ends with this one."""
    command = [sys.executable, __file__]
    source = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    atexit.register(source.communicate)
    return source


def main() -> None:
    """Fork for each line of stdin, and say the fork's process id once its parent has ended."""
    for name in IMPORTED:
        import_module(name)
    for line in sys.stdin.buffer:
        if not (between := os.fork()):
            if not (worker := os.fork()):
                return _become(**json.loads(line))
            os.write(1, b"%d" % worker)
            os._exit(0)
        os.waitpid(between, 0)
        os.write(1, b"\n")
    return None


def _become(arguments: list[str], folder: str, environment: dict[str, str], log: str) -> None:
    os.setsid()
    said = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for ours, theirs in ((os.open(os.devnull, os.O_RDONLY), 0), (said, 1), (said, 2)):
        os.dup2(ours, theirs)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    path = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = [folder, *filter(None, path), *sys.path[1:]]
    sys.argv[:] = ["celery", *arguments]
    runpy.run_module("celery", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
