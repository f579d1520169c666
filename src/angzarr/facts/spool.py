"""The spool between deliveries and a slow sink: bounded, in memory, emptied by one thread.

A delivery only ever puts facts into a list. It must never wait for the sink.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import islice
from typing import Any, Generic, TypeVar

from angzarr.runtime.chance import chance
from angzarr.runtime.failures import LogThrottle

_log = logging.getLogger("angzarr.facts")

_Fact = TypeVar("_Fact")

#: Facts kept while the sink is away; about 2 kB each, so 40 MB at most.
MOST = 20_000
#: Facts written in one go.
BATCH = 500
#: How long facts gather before they are written, in seconds: one commit then serves many.
LINGER = 0.05
#: Waits between two tries while the sink is away, in seconds, before jitter.
FIRST_WAIT = 0.1
LONGEST_WAIT = 5.0
#: How long `close` may take.
CLOSE_WITHIN = timedelta(seconds=2)
#: The share of that time after which the writer stops trying and counts what is lost.
WRITER_SHARE = 0.8


class FactSpool(Generic[_Fact]):
    """Takes facts at once and writes them later, in order, through *write*, which may raise.

    *write* must be idempotent: a batch is tried again until it works. When *most* facts wait, the
    oldest are dropped, counted in `dropped` and logged. A forked child starts with an empty spool;
    what waited at the fork is its parent's to write.

    *on_lost* is given what may be lost because the process ends, once.
    """

    def __init__(
        self,
        write: Callable[[Sequence[_Fact]], None],
        *,
        most: int = MOST,
        batch: int = BATCH,
        on_lost: Callable[[Sequence[_Fact]], None] = lambda _lost: None,
    ) -> None:
        self._write = write
        self._on_lost = on_lost
        self._most = most
        self._batch = batch
        self._start_empty()
        known = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: _if_alive(known, FactSpool._start_empty))
        atexit.register(lambda: _if_alive(known, FactSpool.close))

    def _start_empty(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[_Fact] = deque()
        #: What is being written.
        self._in_hand: Sequence[_Fact] = ()
        self._writer: threading.Thread | None = None
        self._some = threading.Event()
        self._closing = threading.Event()
        self._deadline = 0.0
        #: How many were appended, and how many of these are written or dropped; who waits for it.
        self._appended = self._settled = 0
        #: How many were appended when `on_lost` was told of all that had not been settled.
        self._told_at = 0
        self._progress = threading.Condition(self._lock)
        self._seldom = LogThrottle()
        self._seldom_full = LogThrottle()
        self.dropped = 0

    @property
    def is_empty(self) -> bool:
        """True if all that was appended is being written, or is written."""
        return not self._waiting

    def append(self, facts: Sequence[_Fact]) -> None:
        """Put *facts* last; raises nothing and waits for nothing but other appends."""
        try:
            with self._lock:
                self._waiting.extend(facts)
                self._appended += len(facts)
                full = self._drop_oldest()
                self._have_a_writer()
            self._some.set()
            if full and self._seldom_full.now():
                _log.error("facts_dropped: the spool of %d is full, %d dropped so far; is the"
                           " place that they go to away?", self._most, self.dropped)  # fmt: skip
        except Exception:  # noqa: BLE001 - a fact must not fail its delivery
            _log.exception("facts_not_spooled")

    def flush(self, within: timedelta) -> bool:
        """Wait until what was appended is written; False: it takes longer, or some was dropped."""
        with self._lock:
            last, dropped = self._appended, self.dropped
            done = self._progress.wait_for(lambda: self._settled >= last, within.total_seconds())
            return done and self.dropped == dropped

    def close(self, within: timedelta = CLOSE_WITHIN) -> None:
        """Write what waits, giving up after *within*; facts appended later are still written."""
        with self._lock:
            writer = self._writer
            self._deadline = time.monotonic() + WRITER_SHARE * within.total_seconds()
        self._closing.set()
        self._some.set()
        if writer is not None:
            writer.join(within.total_seconds())
            if writer.is_alive():
                _log.error("facts_unwritten: their place did not answer in time, some are lost")
                with self._lock:
                    left = [*self._in_hand, *self._waiting]
                self._tell_lost(left)

    def _drop_oldest(self) -> bool:
        over = len(self._waiting) - self._most
        for _ in range(over):
            self._waiting.popleft()
        self.dropped += max(over, 0)
        self._settle(max(over, 0))
        return over > 0

    def _settle(self, count: int) -> None:
        """Note, under the lock, that so many wait no more."""
        self._settled += count
        self._progress.notify_all()

    def _have_a_writer(self) -> None:
        if self._writer is None:
            writer = threading.Thread(target=self._run, name="angzarr-facts", daemon=True)
            writer.start()
            self._writer = writer

    def _run(self) -> None:
        while True:
            self._some.wait()
            self._closing.wait(LINGER)
            batch = self._next()
            if batch:
                self._deliver(batch)
            elif self._ended():
                return

    def _next(self) -> list[_Fact]:
        with self._lock:
            batch = list(islice(self._waiting, self._batch))
            for _ in batch:
                self._waiting.popleft()
            self._in_hand = batch
            if not self._waiting and not self._closing.is_set():
                self._some.clear()
            return batch

    def _ended(self) -> bool:
        """Let the thread go if the spool is closed and still empty; the next fact starts one."""
        with self._lock:
            if self._waiting or not self._closing.is_set():
                return False
            self._writer = None
            return True

    def _deliver(self, batch: Sequence[_Fact]) -> None:
        wait = FIRST_WAIT
        while not self._written(batch):
            if self._closing.is_set() and time.monotonic() >= self._deadline:
                self._lose(batch)
                return
            self._pause(wait * (0.5 + chance()))
            wait = min(2 * wait, LONGEST_WAIT)

    def _written(self, batch: Sequence[_Fact]) -> bool:
        try:
            self._write(batch)
        except Exception as error:  # noqa: BLE001 - whatever it is, the facts are kept
            if self._seldom.now():
                _log.warning("facts_delayed: cannot write them, trying again: %s", error)
            return False
        with self._lock:
            self._in_hand = ()
            self._settle(len(batch))
        return True

    def _pause(self, seconds: float) -> None:
        if not self._closing.wait(seconds):
            return
        left = self._deadline - time.monotonic()
        time.sleep(max(0.0, min(seconds, left)))

    def _lose(self, batch: Sequence[_Fact]) -> None:
        with self._lock:
            lost = [*batch, *self._waiting]
            self._in_hand = ()
            self._waiting.clear()
            self.dropped += len(lost)
            self._settle(len(lost))
        _log.error("facts_lost: %d could not be written before the process ended", len(lost))
        self._tell_lost(lost)

    def _tell_lost(self, lost: Sequence[_Fact]) -> None:
        if not lost:  # the writer is just telling of them
            return
        with self._lock:
            told, self._told_at = self._told_at == self._appended, self._appended
        if told:  # by a close before
            return
        try:
            self._on_lost(lost)
        except Exception:  # noqa: BLE001 - the process ends as it would
            _log.exception("lost_facts_not_told")


def _if_alive(known: weakref.ref[FactSpool[Any]], call: Callable[[FactSpool[Any]], None]) -> None:
    spool = known()
    if spool is not None:
        call(spool)
