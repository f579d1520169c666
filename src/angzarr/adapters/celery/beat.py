"""The end of Celery's beat: between two rounds of its clock, and not amid a publish.

Celery closes beat's connection from within a signal handler. If a publish is under way on it, beat
hangs, or ends with a traceback and exit code 1 (Celery 5.7, `Beat.install_sync_handler`).
"""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType
from typing import Any, Final

#: Seconds until a signal that came amid a round comes again.
AGAIN: Final = 0.05
#: Seconds after which a round is cut: it waits for a broker that is away.
LONGEST_ROUND: Final = 2.0
_ENDING: Final = (signal.SIGTERM, signal.SIGINT)


def end_between_rounds(sender: Any, **_: Any) -> None:
    """Take SIGTERM and SIGINT over from Celery; a receiver of its signal `beat_init`.

    *sender* is its `celery.beat.Service`. One in a thread of a worker is left to that worker.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    rounds = {
        vars(kind)["start"].__code__ for kind in type(sender).__mro__ if "start" in vars(kind)
    }
    cut_at: list[float] = []

    def end(number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        cut_at.append(now + LONGEST_ROUND)
        if now >= cut_at[0] or (frame is not None and frame.f_code in rounds):
            _let_all(_ignored_once)  # what `Service.start` saves and closes now is not cut
            raise SystemExit
        again = threading.Timer(AGAIN, os.kill, (os.getpid(), number))
        again.daemon = True
        again.start()

    _let_all(end)


def _ignored_once(_number: int, _frame: FrameType | None) -> None:
    """Do nothing, and let the next signal end the process: a broker may never answer."""
    _let_all(signal.SIG_DFL)


def _let_all(handler: Any) -> None:
    for number in _ENDING:
        signal.signal(number, handler)
