"""New file: it has its name once it is written to the end, and else it never was there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import click

from angzarr.adapters.files.whole_files import opened


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """Give a file for its owner alone that is called *path* once the block ends well.

    A file that exists is never replaced. A process that is killed leaves a `.NAME.….part`.
    """
    if path.exists():
        raise _refused(path, "it exists; name another")
    try:
        handle, name = tempfile.mkstemp(".part", f".{path.name}.", path.parent)
    except OSError as error:
        raise _refused(path, error.strerror or str(error)) from error
    part = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            _settle(file)
        _rename(part, path)
    except FileExistsError as error:
        raise _refused(path, "it exists by now; name another") from error
    except OSError as error:
        raise _refused(path, error.strerror or str(error)) from error
    finally:
        part.unlink(missing_ok=True)


def _settle(file: BinaryIO) -> None:
    """Wait until the disk has *file*."""
    file.flush()
    os.fsync(file.fileno())


def _rename(part: Path, path: Path) -> None:
    """Call *part* *path*, unless somebody made one; raises FileExistsError."""
    try:
        path.hardlink_to(part)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if path.exists():
            raise FileExistsError(path) from None
        part.rename(path)
    with suppress(OSError), opened(path.parent) as folder:  # the name too, where the system can
        os.fsync(folder)


def _refused(path: Path, why: str) -> click.ClickException:
    return click.ClickException(f"{path} cannot be written: {why}")
