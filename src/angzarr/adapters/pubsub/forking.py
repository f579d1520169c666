"""Forks: none while this process waits for Pub/Sub's answer.

gRPC makes itself fit for a forked child only where no thread is in the midst of a call; else
whoever uses it in the child waits for ever. A child of a process that has letters streamed to it
is told so instead.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from angzarr.errors import DeadLetterQueueUnavailable

#: Seconds that a fork waits for calls under way: longer than any of them takes by default.
PATIENCE: Final = 10.0
#: Seconds in which a thread has left gRPC for good after its answer.
_LEAVING: Final = 0.02


class Calls:
    """What this process has under way; safe from any thread."""

    def __init__(self, *, unfit: bool = False) -> None:
        self._changed = threading.Condition()
        self._count = 0
        self._streams = 0
        self._forking = False
        self._ended_at = float("-inf")
        self._unfit = unfit

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Let no fork happen meanwhile; raises DeadLetterQueueUnavailable in an unfit child."""
        if self._unfit:
            raise DeadLetterQueueUnavailable(
                "Pub/Sub cannot be used in this process, which was forked while its parent"
                " received letters or waited for an answer; start it anew"
            )
        with self._changed:
            self._changed.wait_for(lambda: not self._forking)
            self._count += 1
        try:
            yield
        finally:
            with self._changed:
                self._count -= 1
                self._ended_at = time.monotonic()
                self._changed.notify_all()

    def stream(self, change: int) -> None:
        """Note that so many streams more, or fewer, are open."""
        with self._changed:
            self._streams += change

    def before_fork(self) -> None:
        """Wait for what is under way, and hold up what would begin."""
        self._changed.acquire()
        self._forking = True
        self._changed.wait_for(lambda: not self._count, PATIENCE)
        time.sleep(max(0.0, min(_LEAVING, self._ended_at + _LEAVING - time.monotonic())))

    def after_in_parent(self) -> None:
        """Let calls begin again."""
        self._forking = False
        self._changed.notify_all()
        self._changed.release()

    def after_in_child(self) -> None:
        """Begin anew: the parent's threads and their calls do not exist here."""
        self.__init__(unfit=self._unfit or bool(self._count or self._streams))  # type: ignore[misc]


#: Of this process.
CALLS: Final = Calls()
os.register_at_fork(
    before=CALLS.before_fork,
    after_in_parent=CALLS.after_in_parent,
    after_in_child=CALLS.after_in_child,
)
