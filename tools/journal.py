"""Journals: files to which any number of processes append what they did, a JSON object a line.

They outlive the kill -9 of a writer, and so may a part of a line: one write to a file opened
with O_APPEND lands in one place, but where it crosses a page a reader may see its first half, and
a kill may leave it at that. So a line begins with a line's end, which keeps a part from spoiling
the line after it, and a reader leaves out what is no whole object.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def as_line(record: dict[str, Any]) -> bytes:
    """Return what one `os.write` shall append."""
    return f"\n{json.dumps(record)}\n".encode()


def append(file: Path | str, record: dict[str, Any]) -> None:
    fd = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(fd, as_line(record))
    finally:
        os.close(fd)


def whole(lines: Iterable[bytes]) -> list[dict[str, Any]]:
    """Return the records of *lines*, without parts of one."""
    records = []
    for line in lines:
        try:
            records.append(json.loads(line))
        except ValueError:  # an empty line, or a part: no beginning of an object is an object
            continue
    return records


def records(file: Path | str) -> list[dict[str, Any]]:
    return whole(Path(file).read_bytes().split(b"\n"))
