"""ProcessLink: how a supervised process tells its supervisor how it does.

It writes lines of JSON into a pipe, and the time of its nearest hard limit into a shared page. The
page costs no system call, and can be read while the process is stuck in C code.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import threading
from collections.abc import Mapping
from typing import Any, Final

_DEADLINE: Final = struct.Struct("d")


class DeadlinePage:
    """The time (monotonic) by which a process must have moved on, or none. Made before the fork."""

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, _DEADLINE.size)

    def set(self, at: float | None) -> None:
        """Write it; None: nothing runs that has a hard limit."""
        _DEADLINE.pack_into(self._page, 0, at or 0.0)

    def passed(self, now: float) -> bool:
        """True if it passed before *now*."""
        (at,) = _DEADLINE.unpack_from(self._page)
        return bool(0.0 < at < now)

    def close(self) -> None:
        """Let it go."""
        self._page.close()


class ProcessLink:
    """The process's side; safe to use from any thread.

    Its *order* is what the supervisor said at its start: its *number* among the processes, the
    *owners* that held the claims of processes that died, and what is for this program alone.
    """

    def __init__(self, pipe: int, page: DeadlinePage, order: Mapping[str, Any]) -> None:
        self.number = int(order["number"])
        self.owners: tuple[str, ...] = tuple(order["owners"])
        self.order = order
        self.page = page
        self._pipe = pipe
        self._parent = os.getppid()
        self._lock = threading.Lock()

    def say(self, **words: Any) -> bool:
        """Tell the supervisor; False if it, or the fork server, is gone."""
        line = json.dumps(words).encode() + b"\n"
        with self._lock:
            try:
                while line:
                    line = line[os.write(self._pipe, line) :]
            except OSError:
                return False
        return os.getppid() == self._parent
