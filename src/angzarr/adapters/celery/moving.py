"""MoverThread: moves what is due in this app's schedule, from a thread of a worker's parent."""

from __future__ import annotations

import atexit
import os
import random
import threading
from collections.abc import Callable
from datetime import timedelta

from angzarr.adapters.celery.publisher import LonePublisher, refuses
from angzarr.delivery.mover import Mover
from angzarr.delivery.schedule import DueMessages

#: How long a stop waits for the message that is just being published.
_PATIENCE = timedelta(seconds=2)


class MoverThread:
    """Runs a `Mover` until the process ends; children that are forked meanwhile have none."""

    def __init__(
        self,
        due: DueMessages,
        publisher: LonePublisher,
        set_aside: Callable[[bytes, Exception], None],
    ) -> None:
        self._ended = threading.Event()
        self._pid = os.getpid()
        self._publisher = publisher
        self._mover = Mover(
            due=due,
            publish=publisher.publish,
            refuses=refuses,
            set_aside=set_aside,
            chance=random.random,
            stopping=self._ended.is_set,
        )
        self._thread = threading.Thread(target=self._run, name="angzarr-mover", daemon=True)

    def start(self) -> None:
        """Begin to move."""
        self._thread.start()
        atexit.register(self.end)

    def end(self) -> None:
        """Give back what was taken and not published; what takes too long comes back by itself."""
        if self._ended.is_set() or os.getpid() != self._pid:
            return
        self._ended.set()
        atexit.unregister(self.end)
        self._thread.join(_PATIENCE.total_seconds())

    def _run(self) -> None:
        wait = timedelta(0)
        while not self._ended.wait(wait.total_seconds()):
            wait = self._mover.turn()
        self._mover.leave()
        self._publisher.close()
