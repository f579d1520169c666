"""Examination: on what spool and payloads of this machine lie, for the doctor; only reads."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from angzarr.adapters.files.spool_file import letters_among
from angzarr.doctor.letter_rules import SpoolSeen

_MOUNTS: Final = Path("/proc/self/mounts")


def examine(path: Path, most: int) -> SpoolSeen:
    """What is known of the folder; it need not be there yet."""
    there, file_system = ground(path)
    names = [one.name for one in path.iterdir()] if path.is_dir() else []
    return SpoolSeen(
        at=f"spool at {path}",
        file_system=file_system,
        free=shutil.disk_usage(there).free,
        most=most,
        waiting=len(list(letters_among(names))),
    )


def ground(path: Path) -> tuple[Path, str | None]:
    """The nearest thing to *path* that is there, and the type of its file system."""
    there = next(folder for folder in (path, *path.parents) if folder.exists())
    return there, _file_system(there)


def _file_system(path: Path) -> str | None:
    try:
        lines = _MOUNTS.read_text(errors="replace").splitlines()
    except OSError:  # no Linux
        return None
    return file_system_of(path.resolve(), lines)


def file_system_of(path: Path, mounts: Iterable[str]) -> str | None:
    """The type of what *path* lies on, by the lines of *mounts*: the deepest, the last."""
    best, depth = None, -1
    for line in mounts:
        fields = line.split(" ")
        if len(fields) < 3:  # noqa: PLR2004 - device, folder, type
            continue
        folder = Path(fields[1].replace("\\040", " "))
        if path.is_relative_to(folder) and len(folder.parts) >= depth:
            best, depth = fields[2], len(folder.parts)
    return best
