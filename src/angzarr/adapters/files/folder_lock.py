"""FolderLock: which process works on a folder, told by a lock that ends with the process."""

from __future__ import annotations

import errno
import fcntl
import os
import weakref
from pathlib import Path
from typing import Final

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
        """Take the lock; return False, at once, if somebody else has it."""
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
