"""Stop signals: what SIGTERM, SIGINT and SIGQUIT mean to a worker, and SIGTERM to its children.

Celery installs its own handlers before it starts its steps. They print, send Celery's signals and
set the flags that end its loop, and are kept for that; ours go around them. Only Celery's
``on_cold_shutdown`` is left out: it sleeps inside the signal handler, in which no result of a child
is read, and then cancels what has finished meanwhile as well.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from billiard.process import current_process
from celery import platforms, signals
from celery.apps import worker as program

from angzarr.adapters.celery.worker.worker import Stopping
from angzarr.delivery.interrupt import BLADE

#: How long a child that got a signal waits for its parent's word that all of them did (seconds).
WORD_WITHIN = 0.1

_AGAIN = "worker: finishing what runs; the same signal again cuts it short"


class Asked(Protocol):
    """What a signal asks of a worker's shutdown."""

    def ask(self) -> bool:
        """Begin the grace; tell whether this was the first time."""

    def hurry(self) -> None:
        """End the grace now."""


def install(worker: Any, asked: Asked) -> None:
    """Take over from Celery's handlers; the worker's main thread must call it."""
    warm = partial(program.install_worker_term_handler, worker, sig="SIGTERM", how="Warm")
    _around("SIGTERM", partial(warm, callback=None, exitcode=os.EX_OK), asked)
    _around("SIGINT", partial(program.install_worker_int_handler, worker, callback=_say), asked)
    cold = partial(program.install_worker_term_hard_handler, worker, callback=_nothing)
    _around("SIGQUIT", cold, asked, at_once=True)


def _around(
    name: str, install_celerys: Callable[[], object], asked: Asked, *, at_once: bool = False
) -> None:
    install_celerys()
    celerys: Any = signal.getsignal(platforms.signals.signum(name))

    def handler(number: int, frame: Any) -> None:
        first = asked.ask()
        if first or at_once:
            celerys(number, frame)
        if at_once or not first:
            asked.hurry()

    handler.__name__ = f"angzarr_{name.lower()}"
    platforms.signals[name] = handler


def _say(_worker: Any) -> None:
    program.safe_say(_AGAIN)


def _nothing(_worker: Any) -> None:
    """Stand in for ``on_cold_shutdown``."""


def heed_cut(stopping: Stopping) -> None:
    """Let SIGTERM cut the handler of this prefork child once its worker's grace has ended (16).

    Before that it means what it meant: billiard ends a child by it. But where the whole worker
    stops, as when a service manager signals all its processes, the parent decides.
    """
    if current_process().name == "MainProcess":
        return
    before = signal.getsignal(signal.SIGTERM)

    def on_term(number: int, frame: Any) -> None:
        if not stopping():
            time.sleep(WORD_WITHIN)
        if stopping.cutting:
            BLADE.strike()
        elif not stopping():  # else the parent says when this process ends
            _go_on(before, number, frame)

    def restore(**_signal: Any) -> None:
        platforms.signals["SIGTERM"] = before

    platforms.signals["SIGTERM"] = on_term
    # From here on billiard's parent ends it by SIGTERM as soon as it has said its last word.
    signals.worker_process_shutdown.connect(restore, weak=False)


def _go_on(before: Any, number: int, frame: Any) -> None:
    if callable(before):
        before(number, frame)
    elif before == signal.SIG_DFL:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
