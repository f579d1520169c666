"""Hardships: what a machine may do to one worker, short of ending it; each is taken off again.

A worker is born into some of them (a wrong clock, a log that cannot be written to), others strike
it while it works (no file, no thread, no process more). None is known to the product.
"""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any, Final

from family import Family

#: The variable that tells a worker which file says that it gets no thread and no process.
STARVED: Final = "CHAOS_STARVED"
#: The variable that tells a worker by how many seconds its clock is off.
CLOCK: Final = "CHAOS_CLOCK"
#: Where a worker's log begins in its file, in bytes: beyond the end of every other file of a run.
LOG_BEGINS: Final = 64 * 1024 * 1024
#: Whose modules are shown a wrong clock.
_SEE_IT: Final = frozenset({"angzarr", "celery", "kombu"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Birth:
    """What a worker is born into: seconds that its clock is off, and what becomes of its log."""

    clock: int = 0
    #: Whether whoever reads its log is gone once it is ready.
    mute: bool = False


#: A birth like any other.
PLAIN: Final = Birth()


def wrong_clock(seconds: int) -> None:
    """Put this process's wall clock off by *seconds*, for all that angzarr, Celery and kombu ask.

    Its monotonic clock goes right, as that of a machine whose clock was set wrong does. Not done by
    libfaketime: without its own monotonic clock Python's `time.sleep` fails under it.
    """
    off, right = timedelta(seconds=seconds), time.time

    class Off(type):
        def __instancecheck__(cls, one: object) -> bool:
            return isinstance(one, datetime)

    class Wrong(datetime, metaclass=Off):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) + off

    def wrong() -> float:
        return right() + seconds

    time.time = wrong
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in _SEE_IT:
            for word, instead in (("datetime", Wrong), ("time", wrong)):
                if getattr(module, word, None) in (datetime, right):
                    setattr(module, word, instead)


def spawn(
    command: list[str], log: Path, *, broken: Callable[[], bool] | None = None, **options: Any
) -> subprocess.Popen[bytes]:
    """Start *command* in a session of its own; what it says goes to *log*.

    *broken* tells when whoever reads what it says is gone; None: never.
    """
    with log.open("wb") as words:
        words.truncate(LOG_BEGINS)  # no bytes of a disk: see `no_more_log`
        words.seek(LOG_BEGINS)
        if broken is None:
            return _start(command, words.fileno(), options)
    read, write = os.pipe()
    try:
        process = _start(command, write, options)
    finally:
        os.close(write)
    threading.Thread(target=_copy, args=(read, log, broken), daemon=True).start()
    return process


def read_log(log: Path) -> bytes:
    """Return what a process that was spawned has said."""
    with log.open("rb") as words:
        words.seek(LOG_BEGINS)
        return words.read()


def _copy(read: int, log: Path, broken: Callable[[], bool]) -> None:
    """Copy what comes until it is *broken*; then let each write fail with EPIPE."""
    with log.open("r+b") as words:
        words.seek(LOG_BEGINS)
        while not broken() and (said := os.read(read, 65536)):
            words.write(said)
            words.flush()
    os.close(read)


def _start(command: list[str], words: int, options: dict[str, Any]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=words, stderr=words, start_new_session=True,
        **options,
    )  # fmt: skip


def no_more_files(pid: int) -> AbstractContextManager[None]:
    """Let process *pid* open nothing more, but for the few gaps between what it has open."""
    used = [int(one.name) for one in Path(f"/proc/{pid}/fd").iterdir()]
    return _limited([pid], resource.RLIMIT_NOFILE, max(used) + 1)


def no_more_log(pid: int) -> AbstractContextManager[None]:
    """Let process *pid* and its children write no line more, as on a full disk.

    Their log is the only file in which they write so far behind its beginning.
    """
    return _limited([pid, *_children(pid)], resource.RLIMIT_FSIZE, LOG_BEGINS)


@contextmanager
def _limited(pids: Sequence[int], what: int, soft: int) -> Iterator[None]:
    before = resource.prlimit(pids[0], what)
    for pid in pids:
        with suppress(ProcessLookupError):
            resource.prlimit(pid, what, (soft, before[1]))
    try:
        yield
    finally:
        for pid in {*pids, *_children(pids[0])}:  # what was forked meanwhile has the limit too
            with suppress(ProcessLookupError):
                resource.prlimit(pid, what, before)


def _children(pid: int) -> list[int]:
    """All processes below *pid*."""
    return [one for one in Family(pid).pids() if one != pid]


@contextmanager
def no_more_threads(marker: Path) -> Iterator[None]:
    """Let the worker of *marker* begin no thread and no process, as a limit of pids does."""
    marker.touch()
    try:
        yield
    finally:
        marker.unlink()


def heed(environment: Mapping[str, str]) -> None:
    """Let this process feel what its *environment* says of its clock, and `no_more_threads`.

    To be called once all is imported; refusals are the kernel's, as Python says them.
    """
    if seconds := int(environment.get(CLOCK, "0")):
        wrong_clock(seconds)
    if marker := environment.get(STARVED, ""):
        _starve(marker)


def _starve(marker: str) -> None:
    begin, fork = threading.Thread.start, os.fork

    def start(thread: threading.Thread) -> None:
        if Path(marker).exists():
            raise RuntimeError("can't start new thread")
        begin(thread)

    def forked() -> int:
        if Path(marker).exists():
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return fork()

    threading.Thread.start, os.fork = start, forked  # type: ignore[method-assign]
