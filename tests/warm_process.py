"""Run `celery` and `angzarr` in processes that need not import them: forks of one that has.

The imports are most of what a short process computes. Each fork is as the command line would start
it: a session of its own, its own environment, log and folder, and the process here is its parent.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path

#: What most of them import, and none of it reads the environment or starts a thread.
IMPORTED = (
    "celery.bin.celery", "celery.apps.beat", "celery.apps.worker", "celery.worker.components",
    "celery.worker.consumer", "celery.concurrency.prefork", "celery.concurrency.thread",
    "celery.app.events", "celery.events.receiver", "kombu.pidbox", "kombu.transport.pyamqp",
    "kombu.transport.SQS", "redis", "structlog", "yaml", "httpx", "sqlalchemy.dialects.sqlite",
    "sqlalchemy.dialects.postgresql.psycopg",
    "angzarr.app.angzarr", "angzarr.app.worker", "angzarr.app.projections",
    "angzarr.adapters.celery.shutdown.shutdown", "angzarr.adapters.celery.worker.consumer",
    "angzarr.adapters.celery.worker.request", "angzarr.adapters.celery.memory_transport",
    "angzarr.adapters.redis.transport", "angzarr.adapters.redis.fleet",
    "angzarr.adapters.rabbitmq.dead_letters", "angzarr.adapters.structlog.logs",
    "angzarr.cli.application", "angzarr.wiring.analysis_worker", "angzarr.wiring.operations",
)  # fmt: skip
#: Linux: orphans of our descendants become our children.
PR_SET_CHILD_SUBREAPER = 36


def begin(
    program: Sequence[str], *, folder: Path, environment: Mapping[str, str], log: Path
) -> Process | subprocess.Popen[bytes]:
    """Begin `celery …` or `angzarr …` in *folder*; what it says goes to the end of *log*."""
    if {"gevent", "eventlet"} & {*program}:  # they change the libraries before the imports
        command = [sys.executable, "-m", *program]
        with log.open("ab") as said:
            return subprocess.Popen(
                command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=said,
                stderr=said, start_new_session=True,
            )  # fmt: skip
    return _fork(program, folder, environment, log, log)


def run(
    program: Sequence[str],
    *,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    timeout: float = 300,
    check: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run `angzarr …` or `celery …` to its end, as `subprocess.run` does with its output kept."""
    with tempfile.TemporaryDirectory() as kept:
        said, complained = Path(kept) / "stdout", Path(kept) / "stderr"
        process = _fork(program, folder or Path.cwd(), environment or os.environ, said, complained)
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        done = subprocess.CompletedProcess(
            list(program), code, said.read_text(), complained.read_text()
        )
    if check:
        done.check_returncode()
    return done


def _fork(
    program: Sequence[str], folder: Path, environment: Mapping[str, str], out: Path, err: Path
) -> Process:
    order = {
        "program": [*map(str, program)], "folder": str(folder), "out": str(out), "err": str(err),
        "environment": {**environment},
    }  # fmt: skip
    source, prctl = _source(), ctypes.CDLL(None).prctl
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        source.stdin.write(json.dumps(order).encode() + b"\n")
        source.stdin.flush()
        return Process(int(source.stdout.readline()), [*order["program"]])
    finally:
        prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


class Process:
    """A child of this process, with those methods of `subprocess.Popen` that tests need."""

    def __init__(self, pid: int, args: list[str]) -> None:
        self.pid = pid
        self.args = args
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
                raise subprocess.TimeoutExpired(self.args, timeout)
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
    gc.collect()
    gc.freeze()  # no fork looks at, and so copies, what it shares with this process
    for line in sys.stdin.buffer:
        if not (between := os.fork()):
            if not (process := os.fork()):
                return _become(**json.loads(line))
            os.write(1, b"%d" % process)
            os._exit(0)
        os.waitpid(between, 0)
        os.write(1, b"\n")
    return None


def _become(
    program: list[str], folder: str, environment: dict[str, str], out: str, err: str
) -> None:
    os.setsid()
    for ours, theirs in ((os.open(os.devnull, os.O_RDONLY), 0), (_log(out), 1), (_log(err), 2)):
        os.dup2(ours, theirs)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    path = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = [folder, *filter(None, path), *sys.path[1:]]
    sys.argv[:] = program
    runpy.run_module(program[0], run_name="__main__", alter_sys=True)


def _log(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)


if __name__ == "__main__":
    main()
