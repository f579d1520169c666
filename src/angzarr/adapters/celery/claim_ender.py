"""Ends claims in batches; a message is acknowledged only after the end of its claim is confirmed.

The worker's loop ends them itself, in its own turns: another thread would take the interpreter from
it, or wait for it. A thread takes what the loop cannot: what waits while a handler keeps the loop
of a solo worker, what the store does not take at once, and all ends where no loop takes turns.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple

from angzarr.delivery.retry_until_available import FIRST_WAIT, LONGEST_WAIT
from angzarr.errors import is_absence
from angzarr.resilience.idempotency import ClaimEnd, IdempotencyStore
from angzarr.runtime.chance import chance
from angzarr.runtime.failures import LogThrottle, is_machine_fault
from angzarr.runtime.group_commit import GROUP_COMMIT

_log = logging.getLogger("angzarr.worker")

#: Seconds that ends wait for others while the loop has other things to do.
GATHERING: Final = 0.005
#: Seconds after which the thread takes what the loop has not ended. It looks as often: more often
#: costs a busy machine more than it gains.
OVERDUE: Final = 0.02
#: Seconds for which the thread looks for that after the last end; then it sleeps until the next.
WATCHED: Final = 1.0
#: Ends in one call, so that none holds up a store, or its locks, for long.
MOST_A_CALL: Final = 64
#: Seconds that a stopping worker waits for the call that is under way.
PATIENCE: Final = 2.0


class EndingClaim(NamedTuple):
    """A claim that is to end, and who is told of it, by the loop or by the thread."""

    end: ClaimEnd
    #: Called with whether the claim was still ours; if not, nothing was changed.
    then: Callable[[bool], object]
    #: Called with the error if this claim cannot be ended although the store answers.
    refuse: Callable[[Exception], object]


class ClaimEnder:
    """One in each worker process tree; safe to use from any thread.

    While the store is away all ends wait, and are sent again until it is back.
    """

    def __init__(
        self, store: IdempotencyStore, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._monotonic = monotonic
        self._line: deque[EndingClaim] = deque()
        #: When the oldest in line came, and when one came last.
        self._since = self._last = float("-inf")
        self._taking = threading.Lock()
        self._asked: SimpleQueue[threading.Event | None] = SimpleQueue()
        #: Whether a loop takes turns, the thread is awake, and the store refused the last turn.
        self._looped = self._watching = self._away = False
        #: How many turns the loop has taken, and how many of these the thread has seen.
        self._turns = self._seen = 0
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._seldom = LogThrottle()

    def start(self) -> None:
        """Start the thread, also after a stop; raises what stands against it."""
        if not self._is_alive():
            self._stopped.clear()
            thread = threading.Thread(target=self._run, name="angzarr-claims", daemon=True)
            thread.start()
            if self._thread is None:
                GROUP_COMMIT.open()
            self._thread = thread

    def end(self, *claims: EndingClaim) -> None:
        """End *claims* soon; now and once, where no thread does it (any more)."""
        self._last = self._monotonic()
        if not self._line:
            self._since = self._last
        self._line.extend(claims)
        if not self._is_alive():
            self._end_line()
        elif not (self._looped and self._watching):
            self._watching = True
            self._asked.put(None)

    def turn(self, *, idle: bool) -> bool:
        """Take a turn of a worker's loop; return whether anything ended.

        Nothing waits for company once the loop is *idle*.
        """
        self._looped = True
        self._turns += 1
        if not self._line or self._away:
            return False
        is_early = self._monotonic() - self._since < GATHERING
        if not idle and is_early and len(self._line) < MOST_A_CALL:
            return False
        batch = self._take()
        try:
            held = self._store.settle_all([one.end for one in batch])
        except Exception as error:  # noqa: BLE001 - the thread finds out what to do
            _log.debug("ends_left_to_the_thread: %r", error)
            self._away = True
            self._line.extendleft(reversed(batch))
            self._asked.put(None)
            return False
        self._tell_all(batch, held)
        return True

    def wait(self, patience: float) -> bool:
        """Wait until all that was asked for has ended; False if that took *patience* seconds."""
        if not self._is_alive():
            self._end_line()
            return True
        done = threading.Event()
        self._asked.put(done)
        return done.wait(patience)

    def finish(self, patience: float) -> None:
        """End what waits within *patience* seconds, then take no more.

        What is left is not acknowledged, and its claims end with the worker's lease.
        """
        self.wait(patience)
        self._stopped.set()
        self._asked.put(None)
        thread, self._thread = self._thread, None
        if thread is not None:
            GROUP_COMMIT.close()
        if thread is not None and thread is not threading.current_thread():
            thread.join(PATIENCE)

    def _is_alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _take(self) -> list[EndingClaim]:
        """Those that end with the next call; what is told of them is written then."""
        with self._taking:
            number = min(len(self._line), MOST_A_CALL)
            GROUP_COMMIT.write()  # before they leave the line: they stay there if this is cut short
            self._since = self._monotonic()
            return [self._line.popleft() for _ in range(number)]

    def _run(self) -> None:
        batch: list[EndingClaim] = []
        while not self._stopped.is_set():
            try:
                done = self._next()
                left = self._is_left()
                if done or batch or not self._looped or self._away or left:
                    self._end(batch)
                    batch.clear()
                    while more := self._take():
                        batch.extend(more)
                        self._end(batch)
                        batch.clear()
                    self._away = False
                if done:
                    done.set()
            except BaseException as error:  # noqa: BLE001 - the batch in hand is taken again
                self._pause(FIRST_WAIT.total_seconds(), len(batch), error)

    def _next(self) -> threading.Event | None:
        """Wait until somebody asks, or for as long as the loop may take."""
        if self._monotonic() - self._last > WATCHED:
            self._watching = False
        try:
            # Whoever put something in line just before sees that nobody watches, or is seen here.
            return self._asked.get(timeout=OVERDUE if self._watching or self._line else None)
        except Empty:
            return None

    def _is_left(self) -> bool:
        """True if what waits has waited long, and the loop took no turn since the last look.

        A loop that only waits for a processor does it better itself: the thread wants one as well.
        """
        stands, self._seen = self._turns == self._seen, self._turns
        return stands and bool(self._line) and self._monotonic() - self._since >= OVERDUE

    def _end_line(self) -> None:
        while batch := self._take():
            self._end(batch)

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
            self._tell_all(batch, held)
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
                "holding events: the claims of %d could not be ended, trying again: %r",
                count, error,
            )  # fmt: skip
        pause = wait * (0.5 + chance())
        return self._is_alive() and not self._stopped.wait(pause)

    def _tell_all(self, batch: list[EndingClaim], held: list[bool]) -> None:
        for one, still_ours in zip(batch, held, strict=True):
            self._tell(one, one.then, still_ours)

    def _tell(self, one: EndingClaim, heard: Callable[[Any], object], what: object) -> None:
        try:
            heard(what)
        except Exception:  # noqa: BLE001 - the others are to hear too
            _log.exception("not_acknowledged: %s", one.end.key)
