"""Family: the living processes of one worker, also those whose parent has died.

`angzarr worker` starts a fork server in a session of its own, whose processes stay in that session
when it dies.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_LOOK = 0.01


class _Told(NamedTuple):
    parent: int
    session: int


class Family:
    """All processes that *leader*, a session's leader, has started in its session or in others.

    A session of which the leader's parent died before anything was asked of it is not known.
    """

    def __init__(self, leader: int) -> None:
        self.leader = leader
        self._sessions = {leader}

    def pids(self) -> list[int]:
        """Its processes, parents before their children."""
        living = _living()
        found = [pid for pid, told in living.items() if told.session in self._sessions]
        for parent in found:  # grows while it is walked
            found += [
                pid for pid, told in living.items() if told.parent == parent and pid not in found
            ]
        self._sessions |= {living[pid].session for pid in found}
        return sorted(found, key=lambda pid: _depth(pid, living))

    def children(self, of: int | None = None) -> list[int]:
        """The children of one of its processes, by default of its leader."""
        parent = self.leader if of is None else of
        return [pid for pid, told in _living().items() if told.parent == parent]

    def signal(self, number: signal.Signals) -> None:
        """Send *number* to all, to parents first."""
        for pid in self.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self) -> None:
        """SIGKILL all, and what they start meanwhile, and wait until none lives."""
        while self.pids():
            self.signal(signal.SIGKILL)
            time.sleep(_LOOK)


def is_alive(pid: int) -> bool:
    """True while *pid* runs; a zombie does not."""
    return pid in _living()


def _living() -> dict[int, _Told]:
    found = {}
    for process in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            state, parent, _, session, *_ = process.read_text().rpartition(")")[2].split()
            if state not in "ZX":
                found[int(process.parent.name)] = _Told(int(parent), int(session))
    return found


def _depth(pid: int, living: dict[int, _Told]) -> int:
    depth = 0
    while pid in living:
        pid, depth = living[pid].parent, depth + 1
    return depth
