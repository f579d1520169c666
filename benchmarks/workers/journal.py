"""Journal: which handler started when and in which worker, one record a start, in one file.

Records are appended in one write each, so processes do not tear each other's, and what was
written outlives a killed process.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_RECORD = struct.Struct("qqq")


class Start(NamedTuple):
    """One start: the message's number, when (s, monotonic), and the pid of the worker's parent."""

    number: int
    moment: float
    worker: int


class Journal:
    """The starts of all handlers, in the order in which they were written."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        #: Where a supervisor is the worker; else its process group says which it is.
        self._group = int(os.environ.get("BENCH_GROUP", "0"))
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, number: int) -> None:
        """Append a start of *number* by this process, now."""
        os.write(self._file, _RECORD.pack(number, time.monotonic_ns(), self._group or os.getpgrp()))

    def __len__(self) -> int:
        """Return how many starts there are; costs one system call."""
        return os.fstat(self._file).st_size // _RECORD.size

    def __iter__(self) -> Iterator[Start]:
        """Yield all starts that there are now."""
        whole = self._path.read_bytes()
        for number, moment, worker in _RECORD.iter_unpack(whole):
            yield Start(number, moment / 1e9, worker)

    def starts(self, number: int) -> list[Start]:
        """Return the starts of one message."""
        return [start for start in self if start.number == number]

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)
