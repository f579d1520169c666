"""FolderOfLetters: the way out of a spool's folder, for who forwards and who looks (spec L4)."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from angzarr.adapters.files import spool_file, whole_files
from angzarr.adapters.files.folder_lock import FolderLock
from angzarr.adapters.files.spool_file import Content
from angzarr.adapters.files.spool_names import letters_among
from angzarr.dead_letters.forwarding import Aside, Spooled, SpoolTally
from angzarr.dead_letters.queue import Outgoing
from angzarr.errors import DeadLetterQueueUnavailable, DecodeError

#: O_NONBLOCK: somebody's named pipe must not stop the forwarder.
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@contextlib.contextmanager
def told(path: Path) -> Iterator[None]:
    """Turn a failure of the disk into DeadLetterQueueUnavailable with one sentence."""
    try:
        yield
    except OSError as error:
        msg = f"the spool at {path} cannot be used: {whole_files.reason_of(error)}"
        raise DeadLetterQueueUnavailable(msg) from error


class FolderOfLetters:
    """Fulfils `SpooledLetters` on the folder of a `Spool`, which need not exist yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = FolderLock(path)

    def waiting(self) -> list[Spooled]:
        """Return what waits, oldest first; nothing where there is no folder."""
        return self._letters_in(self._path)

    def set_apart(self, aside: Aside) -> list[Spooled]:
        """Return what was set aside, oldest first."""
        return self._letters_in(self._path / aside)

    def tally(self) -> SpoolTally:
        """Count everything."""
        waiting = self.waiting()
        apart = {aside: self.set_apart(aside) for aside in Aside}
        return SpoolTally(
            letters=len(waiting),
            size=sum(one.size for letters in (waiting, *apart.values()) for one in letters),
            oldest_at=waiting[0].at if waiting else None,
            refused=len(apart[Aside.REFUSED]),
            damaged=len(apart[Aside.DAMAGED]),
        )

    def read(self, letter: Spooled, /, *, aside: Aside | None = None) -> Outgoing | None:
        """Return a letter, or one that was set aside (see SpooledLetters)."""
        with told(self._path):
            raw = _read(self._path / (aside or "") / letter.name)
        return None if raw is None else spool_file.read(raw)

    def content(self, letter: Spooled, /) -> Content | None:
        """Return the bytes of a letter and what is said of them (see `read`)."""
        with told(self._path):
            raw = _read(self._path / letter.name)
        return None if raw is None else spool_file.content(raw)

    def done(self, letters: Sequence[Spooled], /) -> None:
        """Delete these. They may come back after a power cut, and are then forwarded twice."""
        with told(self._path):
            for letter in letters:
                (self._path / letter.name).unlink(missing_ok=True)

    def set_aside(self, letter: Spooled, aside: Aside, /) -> None:
        """Move this one into the folder that *aside* names."""
        with told(self._path), contextlib.suppress(FileNotFoundError):
            (self._path / aside).mkdir(mode=0o700, exist_ok=True)
            (self._path / letter.name).rename(self._path / aside / letter.name)

    def bring_back(self, aside: Aside) -> int:
        """Let everything that was set aside wait again; return how many letters that were."""
        back = self.set_apart(aside)
        with told(self._path):
            for letter in back:
                with contextlib.suppress(FileNotFoundError):
                    (self._path / aside / letter.name).rename(self._path / letter.name)
        return len(back)

    @contextlib.contextmanager
    def alone(self) -> Iterator[bool]:
        """Hold the folder's lock, if nobody else does (see SpooledLetters)."""
        with told(self._path):
            ours = self._lock.take()
        try:
            yield ours
        finally:
            self._lock.free()

    def _letters_in(self, folder: Path) -> list[Spooled]:
        with told(self._path):
            return letters_among(whole_files.names_in(folder))


def _read(path: Path) -> bytes | None:
    """Return what the file holds, None if it is gone; raises DecodeError if it is no file."""
    try:
        file = os.open(path, _READ)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        msg = "it is a link, not a letter"
        raise DecodeError(msg) from error
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            msg = "it is not a file"
            raise DecodeError(msg)
        with open(file, "rb", closefd=False) as opened:
            return opened.read(spool_file.MAX_FILE_BYTES + 1)
    finally:
        os.close(file)
