"""Alarm: ends what hangs on the main thread, and says where it hung.

The signal is that of pytest-timeout's `signal` method; its timer is kept and runs on.
"""

from __future__ import annotations

import asyncio
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

#: Whose code is not what somebody looks for who wants to know where a handler hangs.
_OURS: Final = ("angzarr", "celery", "kombu", "billiard")
_SHORTEST: Final = 0.001


class Hangs(BaseException):
    """Raised in what hangs; no handler catches it by ``except Exception``."""

    def __init__(self, told: str) -> None:
        super().__init__(told)
        self.told = told


@contextmanager
def alarm(seconds: float, tell: Callable[[str], str]) -> Iterator[None]:
    """Raise `Hangs` in this thread, which must be the main one, if the block takes longer.

    *tell* says what hangs, given where in the user's code.
    """
    before: Any = signal.getsignal(signal.SIGALRM)
    begun = time.monotonic()
    left, _ = signal.setitimer(signal.ITIMER_REAL, 0)
    theirs_first = 0 < left <= seconds

    def ring(number: int, frame: FrameType | None) -> None:
        nonlocal left
        if theirs_first:
            left = 0.0  # it rings once
            if callable(before):
                before(number, frame)
        raise Hangs(tell(where(frame)))

    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, left if theirs_first else max(seconds, _SHORTEST))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if left:
            passed = time.monotonic() - begun
            signal.setitimer(signal.ITIMER_REAL, max(left - passed, _SHORTEST))


def where(frame: FrameType | None) -> str:
    """Return the line of the user's code that *frame* is at or was called by, the innermost.

    Where this thread only waits for coroutines, that is the line at which one of them waits.
    """
    stack = [*traceback.extract_stack(frame), *_awaited()]
    for line in reversed(stack):
        parts = Path(line.filename).parts
        named = not line.filename.startswith("<")
        if named and "lib" not in parts and not set(_OURS) & set(parts):
            return f"{line.filename}:{line.lineno} in {line.name}"
    return f"{stack[-1].filename}:{stack[-1].lineno} in {stack[-1].name}"


def _awaited() -> list[traceback.FrameSummary]:
    """Return where this thread's loop waits: the longest chain of coroutines that await another.

    Nothing where no loop runs here, and where one of its coroutines does: the stack tells that.
    """
    try:
        if asyncio.current_task() is not None:
            return []
        tasks = asyncio.all_tasks()
    except RuntimeError:  # no loop
        return []
    return max((_chain(one.get_coro()) for one in tasks), key=len, default=[])


def _chain(awaited: Any) -> list[traceback.FrameSummary]:
    lines = []
    while (frame := getattr(awaited, "cr_frame", None)) is not None:
        lines += traceback.extract_stack(frame)[-1:]
        awaited = awaited.cr_await
    return lines
