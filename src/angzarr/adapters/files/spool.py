"""Spool: letters in a folder of this machine, while no dead-letter queue takes them (spec L4).

A letter is a file that was synced, renamed and synced again with its folder before it counts as
put. Nothing is ever deleted to make room.

FolderOfLetters: the way out of a spool's folder, for who forwards and who looks (spec L4).
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from angzarr.adapters.files import spool_file, whole_files
from angzarr.adapters.files.spool_file import Content, letters_among, name_of
from angzarr.adapters.files.whole_files import FolderLock
from angzarr.clock import Clock, SystemClock
from angzarr.dead_letters.codec import MAX_LETTER_BYTES
from angzarr.dead_letters.queue import Outgoing, TooLarge
from angzarr.dead_letters.spool_forwarder import Aside, Spooled, SpoolTally
from angzarr.errors import DeadLetterQueueUnavailable, DecodeError

#: O_NONBLOCK: a foreign named pipe must not stop the forwarder.
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
        """The waiting letters, oldest first; nothing if the folder does not exist."""
        return self._letters_in(self._path)

    def set_apart(self, aside: Aside) -> list[Spooled]:
        """What was set aside, oldest first."""
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
        """A letter, or one that was set aside (see SpooledLetters)."""
        with told(self._path):
            raw = _read(self._path / (aside or "") / letter.name)
        return None if raw is None else spool_file.read(raw)

    def content(self, letter: Spooled, /) -> Content | None:
        """The bytes of a letter and what is said of them (see `read`)."""
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
        """Hold the folder's lock, unless another process does (see SpooledLetters)."""
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
    """The content of the file, None if it is gone; raises DecodeError if it is not a file."""
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


#: The share of the bound that a process writes before it looks what others wrote.
UNLOOKED_SHARE: Final = 0.01


class Spool:
    """Takes letters; any number of processes may share the folder at *path*, which must exist.

    It holds *max_bytes*, what was set aside included, and refuses the rest. Each process that
    writes may be over that by a hundredth of it, or by one letter if that is more. Safe from any
    thread and across fork.
    """

    _last: datetime

    def __init__(self, path: Path, *, max_bytes: int, clock: Clock | None = None) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._clock = clock or SystemClock()
        self._begin()

    def prepare(self) -> None:
        """Make the folder and try it; raises DeadLetterQueueUnavailable where it takes no files."""
        with told(self._path):
            whole_files.make_folder(self._path)
            with whole_files.opened(self._path) as folder:
                trial = whole_files.unfinished()
                whole_files.write_whole(folder, trial, b"written at start\n")
                os.unlink(trial, dir_fd=folder)
                os.fsync(folder)
            lock = FolderLock(self._path)
            if lock.take():
                lock.free()

    def put(self, letters: Sequence[Outgoing], /) -> list[str | None]:
        """Write *letters* (see DeadLetterQueue); a disk without room refuses with a reason."""
        if not letters:
            return []
        self._leave_parents_state()
        with self._lock, told(self._path), whole_files.opened(self._path) as folder:
            answers = [self._put_one(folder, letter) for letter in letters]
            if None in answers:
                os.fsync(folder)
        return answers

    put_raw = put

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def _put_one(self, folder: int, letter: Outgoing) -> str | None:
        raw = spool_file.write(letter)
        if raw is None:
            return TooLarge(f"the spool takes no letter of more than {MAX_LETTER_BYTES} bytes")
        if len(raw) > self._max_bytes:
            told = f"the spool takes {self._max_bytes} bytes, the letter alone has {len(raw)}"
            return TooLarge(told)
        if not self._has_room(folder, len(raw)):
            return f"the spool at {self._path} is full: {self._used} of {self._max_bytes} bytes"
        try:
            whole_files.write_whole(folder, self._name(len(raw), letter.id), raw)
        except OSError as error:
            if error.errno not in whole_files.NO_ROOM:
                raise
            return f"the disk of the spool at {self._path} is full: {whole_files.reason_of(error)}"
        self._used += len(raw)
        self._unlooked += len(raw)
        return None

    def _name(self, size: int, letter_id: str) -> str:
        """The next name; a clock that is set back does not change the order."""
        self._last = max(self._last, self._clock.now())
        self._number += 1
        return name_of(self._last, self._process, self._number, size, letter_id)

    def _has_room(self, folder: int, size: int) -> bool:
        unlooked = self._unlooked + size
        if unlooked > self._max_bytes * UNLOOKED_SHARE or self._used + size > self._max_bytes:
            self._look(folder)
        return self._used + size <= self._max_bytes

    def _look(self, folder: int) -> None:
        """Count what all processes wrote; remove what those that died left unfinished."""
        names = os.listdir(folder)
        whole_files.remove_abandoned(folder, names)
        aside = [name for one in Aside for name in whole_files.names_in(self._path / one)]
        self._used = sum(letter.size for letter in letters_among([*names, *aside]))
        self._unlooked = 0

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._process = os.urandom(4).hex()
        self._number = 0
        self._last = datetime.min.replace(tzinfo=UTC)
        self._used = 0
        self._unlooked = self._max_bytes  # so that the first letter makes it look

    def _leave_parents_state(self) -> None:
        if self._pid != os.getpid():
            self._begin()
