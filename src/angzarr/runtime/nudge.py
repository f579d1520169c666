"""Nudge: makes a loop, or a wait for descriptors, come round at once."""

from __future__ import annotations

import os
import threading


class Nudge:
    """A pipe to oneself, made when first needed.

    A loop that has decided how long it waits listens to file descriptors only. Any thread may call
    `now`, also while another one closes the pipe, whose number may be another's a moment later.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pipe: tuple[int, int] | None = None
        self._pending = False

    def fileno(self) -> int:
        """What to listen to."""
        if self._pipe is None:
            self._pipe = os.pipe()
        return self._pipe[0]

    def now(self) -> None:
        """Let the loop come round once more."""
        with self._lock:
            if self._pipe is not None and not self._pending:
                self._pending = True
                os.write(self._pipe[1], b"x")

    def answer(self) -> None:
        """Take note."""
        if self._pipe is not None and self._pending:
            self._pending = False
            os.read(self._pipe[0], 1)

    def close(self) -> None:
        """Close the pipe."""
        with self._lock:
            if self._pipe is not None:
                for end in self._pipe:
                    os.close(end)
                self._pipe, self._pending = None, False
