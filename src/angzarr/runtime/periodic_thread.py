"""PeriodicThread: work in turns beside everything else, until the process ends."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Protocol


class Turns(Protocol):
    """What is done in turns."""

    def turn(self) -> timedelta:
        """Do some work; return how long to wait before the next turn. Never raises."""

    def leave(self) -> None:
        """Finish, after the last turn."""


class PeriodicThread:
    """Takes turns until the process ends; children that are forked meanwhile have none.

    *make* is given what tells whether to stop. A stop waits for the turn that is under way, but no
    longer than *patience*.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[Callable[[], bool]], Turns],
        patience: timedelta = timedelta(seconds=2),
    ) -> None:
        self._ended = threading.Event()
        self._pid = os.getpid()
        self._patience = patience
        self._turns = make(self._ended.is_set)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()
        atexit.register(self.end)

    def turn(self) -> None:
        """Take one turn here and now, for who does not start the thread."""
        self._turns.turn()

    def end(self) -> None:
        """Take no more turns; one that takes too long is left to end with the process."""
        if self._ended.is_set() or os.getpid() != self._pid:
            return
        self._ended.set()
        if self._thread.ident is None:  # never started: turns were taken by hand, if at all
            self._turns.leave()
            return
        atexit.unregister(self.end)
        self._thread.join(self._patience.total_seconds())

    def _run(self) -> None:
        wait = timedelta(0)
        while not self._ended.wait(wait.total_seconds()):
            wait = self._turns.turn()
        self._turns.leave()
