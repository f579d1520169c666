"""Group commit: what one process writes together, before completions of several events leave it.

A worker that runs handlers itself gathers its acknowledgements. Nothing is true before they leave,
so what must be written before them may gather as well: a kill loses both, and the events come
again. Each write lets other threads go first, so one for many events is worth much.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

_log = logging.getLogger("angzarr.runtime")

#: Items that wait at most.
MOST: Final = 512


class GroupCommit:
    """One in each process; safe to use from any thread. Nothing waits before it is opened.

    Who opens it calls `write` before each completion of a local delivery leaves the process.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew, closed: a forked child has nothing of its parent's to write."""
        self._waiting: deque[tuple[Callable[[list[Any]], object], Any]] = deque()
        #: Held until the items are written: who finds none waiting may then rely on it.
        self._writing = threading.RLock()
        self._opened = 0

    def open(self) -> None:
        """Let items wait from now on; each call needs one of `close`."""
        self._opened += 1

    def close(self) -> None:
        """Write what waits. After the last `close` nothing waits any more."""
        self._opened -= 1
        self.write()

    @property
    def is_open(self) -> bool:
        """True while items wait."""
        return self._opened > 0

    def add(self, to: Callable[[list[Any]], object], items: Sequence[Any]) -> None:
        """Call *to* with *items* and others: at `write`, or at once while it is closed.

        Calls of one thread keep their order. While closed, this raises what *to* raises.
        """
        if not self._opened:
            to(list(items))
            return
        for item in items:
            self._waiting.append((to, item))
        if not self._opened or len(self._waiting) >= MOST:  # it may have been closed meanwhile
            self.write()

    def write(self) -> None:
        """Write all that was added before; returns once it is written, by whichever thread.

        What fails is logged: no acknowledgement waits for a log that is full. What ends the thread
        meanwhile loses nothing: it is written by the next one, perhaps twice.
        """
        with self._writing:
            while taken := list(self._waiting):
                self._write(taken)
                for _ in taken:
                    self._waiting.popleft()

    @staticmethod
    def _write(taken: Sequence[tuple[Callable[[list[Any]], object], Any]]) -> None:
        for to, those in groupby(taken, itemgetter(0)):
            try:
                to([item for _, item in those])
            except Exception:  # noqa: BLE001 - whatever it was, the others are written
                _log.exception("group_not_written")


#: This process's.
GROUP_COMMIT: Final = GroupCommit()
os.register_at_fork(after_in_child=GROUP_COMMIT.forget)
