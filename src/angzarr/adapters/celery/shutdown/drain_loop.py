"""Turning: Celery's loop goes on while a worker shuts down, and nothing more is consumed.

Results are read, acknowledgements sent, heartbeats and remote control answered, as before.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import Self

_log = logging.getLogger("angzarr.worker")

#: The longest that one turn waits for something to happen (seconds).
LONGEST_TURN = 0.05


class Turning:
    """Turns a worker's event loop, or waits where there is none (gevent, some transports)."""

    def __init__(self, worker: Any) -> None:
        self._worker = worker
        self._hub = worker.hub
        self._loop: Any = None
        self._alarm: Any = None
        self._told = False

    def __enter__(self) -> Self:
        """Begin; where the connection was lost the pool's pipes are watched again."""
        if self._hub is not None:
            self._alarm = self._hub.call_repeatedly(LONGEST_TURN, _nothing)
            if self._worker.consumer.connection is None:
                self._watch_pool()
        return self

    def __exit__(self, *_error: object) -> None:
        """End."""
        if self._alarm is not None:
            self._alarm.cancel()

    def until(self, truth: Callable[[], bool], deadline: Callable[[], float]) -> bool:
        """Turn until *truth* holds; return False if the deadline (monotonic) comes first."""
        while not truth():
            if time.monotonic() >= deadline():
                return False
            self.turn()
        return True

    def turn(self) -> None:
        """Take one turn; what fails in it is logged once."""
        try:
            if self._hub is None:
                self._wait()
                return
            if self._loop is None:
                self._loop = self._hub.create_loop()
            next(self._loop)
        except StopIteration:
            self._loop = None
        except SystemExit:  # a second order to stop, by remote control
            self._loop = None
        except Exception as error:  # noqa: BLE001 - the broker is away; what runs goes on
            self._loop = None
            self._lost(error)

    def settle(self) -> None:
        """Let what was put off until the next turns be done: acknowledgements first of all."""
        if self._hub is None:
            self._worker.consumer.perform_pending_operations()
            return
        for _ in range(2):  # what one of them puts off is done by the second
            done = threading.Event()
            self._hub.call_soon(done.set)
            self.until(done.is_set, in_seconds(1))

    def _wait(self) -> None:
        consumer = self._worker.consumer
        consumer.perform_pending_operations()
        if consumer.connection is not None:
            with suppress(TimeoutError):
                consumer.connection.drain_events(timeout=LONGEST_TURN)
        time.sleep(LONGEST_TURN / 5)

    def _lost(self, error: Exception) -> None:
        if not self._told:
            self._told = True
            _log.warning("connection_lost_while_stopping: what runs goes on (%r)", error)
        time.sleep(LONGEST_TURN / 5)
        if self._hub is not None:
            self._hub.reset()
            self._watch_pool()

    def _watch_pool(self) -> None:
        try:
            self._worker.pool.register_with_event_loop(self._hub)
        except Exception:  # noqa: BLE001 - without it what runs is cut at the deadline
            _log.exception("pool_not_watched")


def in_seconds(seconds: float) -> Callable[[], float]:
    """Return a deadline for `Turning.until`."""
    end = time.monotonic() + seconds
    return lambda: end


def _nothing() -> None:
    """Wake the loop."""
