"""Standard output for lines that messages filled: a file or a program has them as they are.

A terminal would act on what stands in them; there it is spelt out, and a line of JSON stays the
same JSON.
"""

from __future__ import annotations

import sys
from typing import BinaryIO, Protocol

from angzarr.printable import escaped


class Sink(Protocol):
    """What takes bytes."""

    def write(self, data: bytes, /) -> int:
        """Take *data*; return how many bytes that was."""

    def flush(self) -> None:
        """Let all of it go on."""


def standard_output() -> Sink:
    """Return what writes lines to standard output."""
    raw = sys.stdout.buffer
    return _Shown(raw) if sys.stdout.isatty() else raw


class _Shown:
    """A terminal, which is shown whole lines and obeys none."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw

    def write(self, data: bytes, /) -> int:
        """Write *data* with what a terminal would act on spelt out."""
        self._raw.write(escaped(data.decode("utf-8", "backslashreplace")).encode())
        return len(data)

    def flush(self) -> None:
        """Flush the terminal."""
        self._raw.flush()
