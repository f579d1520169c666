"""Exports of facts that are deleted by their age: files of JSON lines, packed, in one folder.

A file is there whole or not at all, and on the disk before its facts are deleted. Its name tells
the time of its first fact, and all of its facts: what two processes export at once is one file.
"""

from __future__ import annotations

import gzip
import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC
from pathlib import Path

from angzarr.adapters.files.whole_files import (
    make_folder,
    names_in,
    opened,
    reason_of,
    remove_abandoned,
    write_whole,
)
from angzarr.errors import StoreUnavailable
from angzarr.facts.fact import Fact


class FactExports:
    """Keeps facts in the folder at *path*, for its owner alone; *lines* makes them JSON lines."""

    def __init__(self, path: Path, lines: Callable[[Sequence[Fact]], Iterable[bytes]]) -> None:
        self._path = path
        self._lines = lines

    def keep(self, facts: Sequence[Fact], /) -> None:
        """Write a file of *facts*, oldest first, and wait for the disk.

        Raises StoreUnavailable where it cannot be written; what *lines* raises is raised.
        """
        raw = gzip.compress(b"".join(self._lines(facts)), mtime=0)
        try:
            make_folder(self._path)
            with opened(self._path) as folder:
                remove_abandoned(folder, names_in(self._path))
                write_whole(folder, name_of(facts), raw)
                os.fsync(folder)
        except OSError as error:
            msg = (
                f"facts cannot be exported to {self._path} ({reason_of(error)}), so none is"
                " deleted: make room or see that it can be written, or name another folder in"
                " facts.export"
            )
            raise StoreUnavailable(msg) from error


def name_of(facts: Sequence[Fact]) -> str:
    """The name of the file of *facts*, of which there is one at least."""
    ids = hashlib.sha256("\n".join(fact.id for fact in facts).encode()).hexdigest()
    return f"facts-{facts[0].at.astimezone(UTC):%Y%m%dT%H%M%SZ}-{ids[:16]}.jsonl.gz"
