"""Standard output for lines that messages filled: a file or a program has them as they are.

A terminal would act on what stands in them; there it is spelt out, and a line of JSON stays the
same JSON.

JSON on standard output, for programs.
"""

from __future__ import annotations

import sys
from typing import BinaryIO, Protocol

import click

from angzarr.analysis.ledger.export import json_text
from angzarr.runtime.text import escaped


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


def print_json(value: object) -> None:
    """Print *value* as one JSON document."""
    click.echo(json_text(value, indent=2))
