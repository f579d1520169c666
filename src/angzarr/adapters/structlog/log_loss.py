"""LogLoss: a process that cannot log goes on at full speed, and counts the lines it lost.

logging prints a traceback of the handler that failed to stderr, which Celery has made a logger. It
fails in its turn, for each line of that traceback: a worker whose disk is full stands still.
"""

from __future__ import annotations

import logging
import mmap
import os
import struct
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

#: Lines lost, when the last was (seconds of a clock that all processes share), and the errno.
_PAGE: Final = struct.Struct("QdI")
#: Seconds after which a loss is over.
_OVER_AFTER: Final = 60.0


class LogLoss:
    """One of a process tree: a page of memory that forked children share."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._page = mmap.mmap(-1, _PAGE.size)
        self._monotonic = monotonic

    def renew(self) -> None:
        """Count anew in this process, which is another worker than its parent."""
        self._page = mmap.mmap(-1, _PAGE.size)

    def guard(self) -> None:
        """Let no handler that logging knows now print why it failed; may be repeated."""
        for handler in _handlers():
            if not isinstance(vars(handler).get("handleError"), _Guard):
                handler.handleError = _Guard(self, handler)  # type: ignore[method-assign]

    def note(self, error: BaseException) -> None:
        """Count a line that *error* kept from being written."""
        number = error.errno or 0 if isinstance(error, OSError) else 0
        _PAGE.pack_into(self._page, 0, self.lines + 1, self._monotonic(), max(number, 0))

    @property
    def lines(self) -> int:
        """About how many lines were lost so far: two processes may lose one at one moment."""
        lost: int = _PAGE.unpack_from(self._page)[0]
        return lost

    def says(self) -> str:
        """What stands against logging; empty: nothing did within a minute."""
        lost, last, number = _PAGE.unpack_from(self._page)
        if not lost or self._monotonic() - last > _OVER_AFTER:
            return ""
        why = os.strerror(number) if number else "its stream is closed"
        return f"{lost} lines could not be written: {why}"


class _Guard:
    """Stands for one handler's `handleError`."""

    def __init__(self, loss: LogLoss, handler: logging.Handler) -> None:
        self._loss = loss
        self._otherwise = handler.handleError
        self._handler = handler

    def __call__(self, record: logging.LogRecord) -> None:
        """Count a line that its stream did not take; an error of a format is shown as ever."""
        error = sys.exc_info()[1]
        if isinstance(error, OSError) or (isinstance(error, ValueError) and self._is_closed()):
            self._loss.note(error)
        else:
            self._otherwise(record)

    def _is_closed(self) -> bool:
        return bool(getattr(getattr(self._handler, "stream", None), "closed", False))


def _handlers() -> Iterator[logging.Handler]:
    known: list[Any] = [logging.getLogger(), *logging.Logger.manager.loggerDict.values()]
    for logger in known:
        yield from getattr(logger, "handlers", ())


#: This process tree's.
LOG_LOSS: Final = LogLoss()
