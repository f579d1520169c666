"""How far a partition is done: what may be committed is all before the first that is open."""

from __future__ import annotations

from typing import NamedTuple


class Progress:
    """How far one partition is done, while it is ours. Offsets are taken in ascending order."""

    def __init__(self) -> None:
        self._open: dict[int, None] = {}
        self._last = -1
        self.committed = -1

    def take(self, offset: int) -> None:
        """Note a letter handed out."""
        self._open[offset] = None
        self._last = offset

    def done(self, offset: int) -> None:
        """Note a letter let go."""
        self._open.pop(offset, None)

    @property
    def taken(self) -> int:
        """The offset before which everything was handed out."""
        return self._last + 1

    @property
    def position(self) -> int:
        """The offset before which everything is done."""
        return next(iter(self._open), self.taken)


class Handle(NamedTuple):
    """A letter's place, and the progress of the assignment that it came by."""

    topic: str
    partition: int
    offset: int
    progress: Progress
