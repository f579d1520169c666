"""LoopWatch: finds the handler that blocks an event loop, and says so once for each event.

All other coroutines of the process stand still meanwhile. Nothing is interrupted: no thread can
raise an error in a call of another one that does not return.
"""

from __future__ import annotations

import logging
import sys
import sysconfig
import threading
import time
from asyncio import AbstractEventLoop, Handle
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextvars import Context
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Final

from angzarr.adapters.celery.worker.delivery_greenlets import DeliveryGreenlet
from angzarr.runtime.cooperative import RUN, CooperativeRun

_log = logging.getLogger("angzarr.worker")

#: Where Python's own code is, where packages are installed, and where ours is.
_PYTHON: Final = (sysconfig.get_path("stdlib"), "<frozen")
_PACKAGES: Final = (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
_OURS: Final = f"{Path(__file__).parents[3]}/"
#: The code of the frames that say which delivery runs: a callback of the loop, and a delivery.
_CALLBACK: Final = Handle._run.__code__  # noqa: SLF001 - pinned by a test
_DELIVERY: Final = DeliveryGreenlet.main.__code__
#: Events that are remembered as told.
_REMEMBERED: Final = 100


class LoopWatch:
    """Asks *loop* for a sign of life in each `turn`; for one thread of its own.

    Calls *died* with a sentence once the loop's thread has ended.
    """

    def __init__(
        self,
        loop: AbstractEventLoop,
        patience: timedelta,
        died: Callable[[str], object],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._loop = loop
        self._patience = patience
        self._died = died
        self._now = monotonic
        self._thread = 0
        self._is_asked = False
        self._asked_at = 0.0
        self._told: deque[str] = deque(maxlen=_REMEMBERED)
        #: How often it was blocked for longer than the patience, and for how long at most (s).
        self.times = 0
        self._longest = 0.0
        self._is_counted = False

    def turn(self) -> timedelta:
        """Look whether the loop has turned since the last time; return when to look again."""
        if not self._is_asked:
            self._is_asked, self._asked_at = True, self._now()
            self._loop.call_soon_threadsafe(self._answer)
        elif self.still_for() >= self._patience.total_seconds():
            self.times += not self._is_counted
            self._is_counted = True
            self._tell()
        return self._patience / 4

    def still_for(self) -> float:
        """The seconds for which the loop has not turned, as far as is known."""
        asked_at = self._asked_at
        return self._now() - asked_at if self._is_asked else 0.0

    def longest(self) -> float:
        """The seconds of the longest time that it was blocked, if that goes on so far."""
        now = self.still_for() if self._is_counted else 0.0
        return max(self._longest, now)

    def leave(self) -> None:
        """End."""

    def _answer(self) -> None:
        self._thread = threading.get_ident()
        self._longest, self._is_counted = self.longest(), False
        self._is_asked = False

    def _tell(self) -> None:
        frames = list(_outwards(sys._current_frames().get(self._thread)))  # noqa: SLF001 - documented
        if not frames:
            self._died("its event loop has ended: a task of it asked the process to exit")
            return
        place = _place(frames)
        run = next(filter(None, map(_run_of, frames)), None)
        what = "code of no delivery" if run is None else run.name
        key = what if run is not None else f"{place.f_code.co_filename}:{place.f_lineno}"
        if key in self._told:
            return
        self._told.append(key)
        _log.error(
            "loop_blocked: %s keeps all coroutines of this process waiting, at %s:%d in %s: await"
            " there, or call it by asyncio.to_thread",
            what, place.f_code.co_filename, place.f_lineno, place.f_code.co_name,
        )  # fmt: skip


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield *frame* and all that called it."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def _place(frames: Sequence[FrameType]) -> FrameType:
    """The innermost of *frames* that a user wrote; else the outermost of an installed package.

    An app may be installed, too.
    """
    users = [frame for frame in frames if not _is_others(frame.f_code.co_filename)]
    written = [one for one in users if not one.f_code.co_filename.startswith(_PACKAGES)]
    return written[0] if written else users[-1] if users else frames[0]


def _is_others(file: str) -> bool:
    is_python = file.startswith(_PYTHON) and not file.startswith(_PACKAGES)
    return is_python or file.startswith(_OURS)


def _run_of(frame: FrameType) -> CooperativeRun | None:
    """The delivery whose callback of the loop, or whose own code, *frame* runs; else None."""
    if frame.f_code is _DELIVERY:
        run: CooperativeRun = frame.f_locals["self"]
        return run
    if frame.f_code is _CALLBACK:
        context: Context = frame.f_locals["self"]._context  # noqa: SLF001 - pinned by a test
        return context.get(RUN)
    return None
