"""Files that are there whole or not at all, and the lock of the process that works on a folder.

Folders are there after a power cut, too. The lock ends with its process.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Final

#: The errors that say that there is no room, for this file or for any.
NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
#: Seconds after which an unfinished file is not written any more.
ABANDONED_AFTER: Final = 3600.0
#: What a file's name begins with until it is whole; a killed process may leave such a file.
_UNFINISHED: Final = ".unfinished-"


def reason_of(error: OSError) -> str:
    """What *error* says, in a few words."""
    return (error.strerror or type(error).__name__).lower()


def unfinished() -> str:
    """A name for a file that is not whole yet."""
    return f"{_UNFINISHED}{os.urandom(8).hex()}"


@contextlib.contextmanager
def opened(path: Path) -> Iterator[int]:
    """Open the folder at *path*, which must exist."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield folder
    finally:
        os.close(folder)


def names_in(folder: Path) -> list[str]:
    """The names of what is in *folder*, none where it does not exist."""
    try:
        return os.listdir(folder)  # noqa: PTH208 - a hundred thousand Paths take a second
    except FileNotFoundError:
        return []


def make_folder(path: Path) -> None:
    """Make the folder at *path* and what is missing above it, durable and their owner's alone."""
    if path.is_dir():
        return
    if path.parent != path:
        make_folder(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
    with opened(path.parent) as parent:
        os.fsync(parent)


def write_whole(folder: int, name: str, raw: bytes) -> None:
    """Write the file *name*, or replace it whole; durable once *folder* is synced, too."""
    temporary = unfinished()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(temporary, flags, 0o600, dir_fd=folder)
    try:
        try:
            _write_all(file, raw)
            os.fsync(file)
        finally:
            os.close(file)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise


def remove_abandoned(folder: int, names: list[str]) -> None:
    """Remove what writers that died left unfinished among *names*."""
    oldest = time.time() - ABANDONED_AFTER
    for name in names:
        if name.startswith(_UNFINISHED):
            with contextlib.suppress(FileNotFoundError):
                if os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime < oldest:
                    os.unlink(name, dir_fd=folder)


def _write_all(file: int, raw: bytes) -> None:
    left = memoryview(raw)
    while left:
        left = left[os.write(file, left) :]


#: The file that is locked. It is empty, and stays.
LOCK_FILE: Final = ".lock"
_TAKEN: Final = frozenset({errno.EAGAIN, errno.EACCES})


class FolderLock:
    """A lock on *folder*, which exists; for one thread. OSError where there can be none.

    A forked child would keep its parent's lock alive: it closes what it inherited.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK_FILE
        self._file: int | None = None
        leave = weakref.WeakMethod(self._leave)
        os.register_at_fork(after_in_child=lambda: (alive := leave()) and alive())

    def take(self) -> bool:
        """Take the lock; return False, at once, if another process has it."""
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._leave()
            if error.errno in _TAKEN:
                return False
            raise
        return True

    def free(self) -> None:
        """Let it go, also for children that were forked meanwhile."""
        if self._file is not None:
            fcntl.flock(self._file, fcntl.LOCK_UN)
        self._leave()

    def _leave(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            os.close(file)
