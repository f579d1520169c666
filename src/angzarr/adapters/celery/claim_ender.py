"""Ends claims in batches, on a thread of a worker's parent process.

While one call to the claim store is under way, the next ends gather for the call after it. So a
batch is as large as the store is slow, and no end waits for company. A message is acknowledged
only after the store has confirmed the end of its claim.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple

from angzarr.delivery.retry_until_available import FIRST_WAIT, LONGEST_WAIT
from angzarr.errors import is_absence
from angzarr.resilience.idempotency import ClaimEnd, IdempotencyStore
from angzarr.runtime.failures import LogThrottle, is_machine_fault

_log = logging.getLogger("angzarr.worker")

#: Ends in one call, so that none holds up a store, or its locks, for long.
MOST_A_CALL: Final = 64
#: Seconds that a stopping worker waits for the call that is under way.
PATIENCE: Final = 2.0


class EndingClaim(NamedTuple):
    """A claim that is to end, and who is told of it. Both run on the thread of the ender."""

    end: ClaimEnd
    #: Called with whether the claim was still ours; if not, nothing was changed.
    then: Callable[[bool], object]
    #: Called with the error if this claim cannot be ended although the store answers.
    refuse: Callable[[Exception], object]


class ClaimEnder:
    """One in each worker process tree; safe to use from any thread.

    While the store is away all ends wait, and are sent again until it is back.
    """

    def __init__(self, store: IdempotencyStore) -> None:
        self._store = store
        self._line: SimpleQueue[EndingClaim | threading.Event] = SimpleQueue()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._seldom = LogThrottle()

    def start(self) -> None:
        """Start the thread, also after a stop; raises what stands against it."""
        if not self._is_alive():
            self._stopped.clear()
            self._thread = threading.Thread(target=self._run, name="angzarr-claims", daemon=True)
            self._thread.start()

    def end(self, *claims: EndingClaim) -> None:
        """End *claims* soon; now and once, where no thread does it (any more)."""
        for claim in claims:
            self._line.put(claim)
        if not self._is_alive():
            self._take_line()

    def wait(self, patience: float) -> bool:
        """Wait until all that was asked for has ended; False if that took *patience* seconds."""
        if not self._is_alive():
            return True
        done = threading.Event()
        self._line.put(done)
        return done.wait(patience)

    def finish(self, patience: float) -> None:
        """End what waits within *patience* seconds, then take no more.

        What is left is not acknowledged, and its claims end with the worker's lease.
        """
        self.wait(patience)
        self._stopped.set()
        self._line.put(threading.Event())  # wakes the thread
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join(PATIENCE)

    def _is_alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _run(self) -> None:
        batch: list[EndingClaim] = []
        while not self._stopped.is_set():
            try:
                self._take(batch, None if batch else self._line.get())
            except BaseException as error:  # noqa: BLE001 - the batch in hand is taken again
                self._pause(FIRST_WAIT.total_seconds(), len(batch), error)

    def _take_line(self) -> None:
        while not self._line.empty():
            with suppress(Empty):
                self._take([], self._line.get_nowait())

    def _take(self, batch: list[EndingClaim], one: EndingClaim | threading.Event | None) -> None:
        """End *batch*, *one* and what waits behind it, up to the next event, which is set then."""
        while isinstance(one, EndingClaim):
            batch.append(one)
            if len(batch) == MOST_A_CALL:
                break
            try:
                one = self._line.get_nowait()
            except Empty:
                break
        self._end(batch)
        batch.clear()
        if isinstance(one, threading.Event):
            one.set()

    def _end(self, batch: list[EndingClaim]) -> None:
        """End all of *batch*; where the store refuses it as a whole, one by one."""
        wait = FIRST_WAIT.total_seconds()
        while batch:
            try:
                held = self._store.settle_all([one.end for one in batch])
            except Exception as error:  # noqa: BLE001 - none may be lost with the thread
                if is_absence(error) or is_machine_fault(error):
                    if not self._pause(wait, len(batch), error):
                        return
                    wait = min(2 * wait, LONGEST_WAIT.total_seconds())
                    continue
                self._end_refused(batch, error)
                return
            for one, still_ours in zip(batch, held, strict=True):
                self._tell(one, one.then, still_ours)
            return

    def _end_refused(self, batch: list[EndingClaim], error: Exception) -> None:
        if len(batch) > 1:
            for one in batch:
                self._end([one])
            return
        [one] = batch
        _log.error("claim_not_ended: its message is given back: %s", one.end.key, exc_info=error)
        self._tell(one, one.refuse, error)

    def _pause(self, wait: float, count: int, error: BaseException) -> bool:
        """Wait for the store; False once the worker stops."""
        if self._seldom.now():
            _log.critical(
                "holding %d handled events: their claims could not be completed, trying again: %r",
                count, error,
            )  # fmt: skip
        pause = wait * (0.5 + random.random())  # noqa: S311 - spreads load, keeps no secret
        return self._is_alive() and not self._stopped.wait(pause)

    def _tell(self, one: EndingClaim, heard: Callable[[Any], object], what: object) -> None:
        try:
            heard(what)
        except Exception:  # noqa: BLE001 - the others are to hear too
            _log.exception("not_acknowledged: %s", one.end.key)
