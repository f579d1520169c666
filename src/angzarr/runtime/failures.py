"""Failures: faults of the machine, how often something failed in a row, how often that is logged.

A machine fault is an error of a process that lacks threads, memory or open files. It says nothing
about the message in hand: that goes back, or its step is tried again. It is not a dead letter.
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from typing import Final

from google.protobuf.message import DecodeError as ProtobufDecodeError

#: What the kernel says that no other process, thread, file or page is to be had; and, with them,
#: that a disk is full or broken.
_ERRNOS: Final = frozenset(
    {
        errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.ENOSPC, errno.EDQUOT,
        errno.EIO, errno.ENOBUFS,
    }
)  # fmt: skip
#: RuntimeErrors that CPython raises for want of a thread, or since the interpreter ends. They have
#: no class of their own before 3.13.
_WORDS: Final = (
    "can't start new thread",
    "can't create new thread",
    "can't allocate lock",
    "cannot schedule new futures after",
)
#: What protobuf says at the end of an error that it otherwise raises for malformed bytes.
_PROTOBUF_WORDS: Final = "Arena alloc failed"
#: How far wrapped errors are followed.
_DEPTH: Final = 8


def is_machine_fault(error: BaseException) -> bool:
    """True if *error*, or an error that it wraps, is for want of threads, memory or files.

    Decoders wrap whatever goes wrong in them, a MemoryError too, in an error about the bytes.
    """
    return any(_is_one(each) for each in _wrapped(error))


def _is_one(error: BaseException) -> bool:
    match error:
        case MemoryError():
            return True
        case OSError():
            return error.errno in _ERRNOS
        case RuntimeError(args=(str(text), *_)):
            return text.startswith(_WORDS)
        case ProtobufDecodeError(args=(str(text), *_)):
            return text.endswith(_PROTOBUF_WORDS)
        case _:
            return False


def _wrapped(error: BaseException) -> Iterator[BaseException]:
    """Yield *error* and what it wraps: named by ``from``, being handled then, or its argument."""
    to_see, seen = [error], 0
    while to_see and seen < _DEPTH:
        at, seen = to_see.pop(0), seen + 1
        yield at
        inner = (at.__cause__, None if at.__suppress_context__ else at.__context__, *at.args[:1])
        to_see.extend(each for each in inner if isinstance(each, BaseException))


#: The things that are counted at once.
MOST_COUNTED: Final = 10_000


class FailureCounts:
    """Counts by key, in this process alone; safe to use from many threads.

    With more than *most* keys it forgets the one that failed longest ago: some end elsewhere.
    """

    def __init__(self, most: int = MOST_COUNTED) -> None:
        self._most = most
        self._counts: dict[Hashable, int] = {}
        self._lock = threading.Lock()

    def add(self, key: Hashable) -> int:
        """Count one failure of *key*; return how many there are now."""
        with self._lock:
            count = self._counts.pop(key, 0) + 1
            self._counts[key] = count
            if len(self._counts) > self._most:
                del self._counts[next(iter(self._counts))]
            return count

    def forget(self, key: Hashable) -> None:
        """Begin anew with *key*: it worked, or it has its end."""
        with self._lock:
            self._counts.pop(key, None)

    def __len__(self) -> int:
        """How many keys are counted."""
        return len(self._counts)


#: Seconds between two lines about the same outage.
A_MINUTE: Final = 60.0


class LogThrottle:
    """Says yes at most once in so many seconds for each cause, the first time at once.

    It remembers a cause for two such spans at most, so there may be many over time.
    """

    def __init__(
        self, seconds: float = A_MINUTE, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._seconds = seconds
        self._monotonic = monotonic
        self._next: dict[str, float] = {}
        self._forget_at = float("-inf")

    def now(self, cause: str = "") -> bool:
        """True if it is time to speak of *cause* again."""
        moment = self._monotonic()
        if moment < self._next.get(cause, float("-inf")):
            return False
        if moment >= self._forget_at:
            self._forget(moment)
        self._next[cause] = moment + self._seconds
        return True

    def _forget(self, moment: float) -> None:
        """Forget the causes that may be logged again."""
        for cause, again_at in self._next.copy().items():
            if again_at <= moment:
                self._next.pop(cause, None)
        self._forget_at = moment + self._seconds
