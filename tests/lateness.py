"""Lateness: how late this machine wakes a thread while something is timed."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

#: Seconds that the watching thread sleeps at a time.
STEP = 0.01


class Lateness:
    """The seconds by which a thread that sleeps in short steps woke too late, in all."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._over = threading.Event()

    def watch(self) -> None:
        while not self._over.is_set():
            began = time.monotonic()
            time.sleep(STEP)
            self.seconds += time.monotonic() - began - STEP

    def end(self) -> None:
        self._over.set()


@contextmanager
def lateness() -> Iterator[Lateness]:
    """Measure inside the block; a bound on a duration there is extended by its `seconds`."""
    measured = Lateness()
    thread = threading.Thread(target=measured.watch, name="lateness", daemon=True)
    thread.start()
    try:
        yield measured
    finally:
        measured.end()
        thread.join()
