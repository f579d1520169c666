"""Nudge: makes a loop come round at once that is about to wait."""

from __future__ import annotations

import os


class Nudge:
    """A pipe to oneself, made when first needed.

    A loop that has decided how long it waits listens to file descriptors only.
    """

    def __init__(self) -> None:
        self._pipe: tuple[int, int] | None = None
        self._pending = False

    def fileno(self) -> int:
        """Return what to listen to."""
        if self._pipe is None:
            self._pipe = os.pipe()
        return self._pipe[0]

    def now(self) -> None:
        """Let the loop come round once more."""
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
        if self._pipe is not None:
            for end in self._pipe:
                os.close(end)
            self._pipe = None
