"""Processes started apart from this one, and ended by pid, never by name."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Process:
    """A pid with the moment it began, so that a reused pid is never taken for ours."""

    pid: int
    began: str
    stop_signal: int = signal.SIGTERM


def spawn(
    command: Sequence[str | Path],
    *,
    log: Path,
    env: Mapping[str, str] | None = None,
    user: str | None = None,
    stop_signal: int = signal.SIGTERM,
) -> Process:
    """Start *command* in a session of its own, writing to *log*; *env* is added to ours."""
    with log.open("ab") as output:
        child = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(env or {})},
            cwd=log.parent,
            start_new_session=True,
            **({"user": user, "group": user, "extra_groups": []} if user else {}),
        )
    child.returncode = 0  # it outlives this program: nothing here waits for it
    return adopt(child.pid, stop_signal)


def adopt(pid: int, stop_signal: int = signal.SIGTERM) -> Process:
    """Take over a process that one of ours has forked."""
    stat = _stat(pid)
    return Process(pid, stat[19] if stat else "", stop_signal)


def alive(process: Process) -> bool:
    """Say whether this very process still runs; a zombie does not."""
    stat = _stat(process.pid)
    return stat is not None and stat[19] == process.began and stat[0] not in "ZX"


def stop(processes: Sequence[Process], patience: float) -> None:
    """Ask *processes* to end and wait; what still runs after *patience* seconds is killed."""
    for process in filter(alive, processes):
        with contextlib.suppress(ProcessLookupError):  # it ended meanwhile
            os.kill(process.pid, process.stop_signal)
    if not _gone(processes, patience):
        kill(processes)


def kill(processes: Sequence[Process]) -> None:
    """SIGKILL *processes* and their descendants and wait until they are gone."""
    members = [member for process in filter(alive, processes) for member in family(process)]
    for member in members:
        if alive(member):
            with contextlib.suppress(ProcessLookupError):  # it ended meanwhile
                os.kill(member.pid, signal.SIGKILL)
    _gone(members, 10)


def _gone(processes: Sequence[Process], patience: float) -> bool:
    deadline = time.monotonic() + patience
    while any(map(alive, processes)):
        if time.monotonic() > deadline:
            return False
        _reap(processes)
        time.sleep(0.05)
    return True


def _reap(processes: Sequence[Process]) -> None:
    """Collect those that happen to be our children, so that no zombie stays behind."""
    for process in processes:
        try:
            os.waitpid(process.pid, os.WNOHANG)
        except ChildProcessError:
            continue


def family(process: Process) -> list[Process]:
    """Return *process* and all its descendants."""
    parents = {int(entry.name): _stat(int(entry.name)) for entry in Path("/proc").glob("[0-9]*")}
    found = [process]
    for parent in found:  # grows while it is walked: children of children follow
        found += [
            Process(pid, stat[19])
            for pid, stat in parents.items()
            if stat and stat[1] == str(parent.pid)
        ]
    return found


def _stat(pid: int) -> list[str] | None:
    """Read the fields of /proc/PID/stat after the name: state, parent, …, start time."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(")")[2].split()
