"""Forwarder: hands letters of a spool on to the queues that they were meant for (spec L4).

Letters wait in the spool, on a disk, until a dead-letter queue takes them. First confirmed, then
deleted: a forwarder that dies in between forwards twice, which is harmless.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from angzarr.dead_letters.queue import Letterbox, Outgoing, TooLarge, put_all
from angzarr.errors import AngzarrError, DeadLetterQueueUnavailable, DecodeError
from angzarr.runtime.failures import LogThrottle


class Spooled(NamedTuple):
    """A letter in the spool; `size` is that of its file, in bytes."""

    name: str
    at: datetime
    size: int
    letter_id: str


class Aside(StrEnum):
    """Where a letter goes that would keep the others waiting; a person looks at it."""

    REFUSED = "refused"  # no queue will ever take it
    DAMAGED = "damaged"  # the content of the file is not a letter, or not the one that was written


class SpoolTally(NamedTuple):
    """How much a spool holds; `size` counts what was set aside, too."""

    letters: int
    size: int
    oldest_at: datetime | None
    refused: int
    damaged: int


class SpooledLetters(Protocol):
    """The way out of a spool. Every verb raises DeadLetterQueueUnavailable if the disk fails."""

    def waiting(self) -> list[Spooled]:
        """The letters that wait, oldest first; none where there is no spool yet."""

    def read(self, letter: Spooled, /) -> Outgoing | None:
        """The spooled letter, None if it was taken away; raises DecodeError if damaged."""

    def done(self, letters: Sequence[Spooled], /) -> None:
        """Delete these; one that is gone already is ignored."""

    def set_aside(self, letter: Spooled, aside: Aside, /) -> None:
        """Keep this one where it keeps no other from being forwarded."""

    def alone(self) -> AbstractContextManager[bool]:
        """Say whether this process is the only one to forward from this spool, for a while.

        Never waits. It ends with the process, however that ends.
        """


_log = logging.getLogger("angzarr.dead_letters")

#: Letters put at once, and bytes of them, unless one alone is larger.
BATCH: Final = 100
BATCH_BYTES: Final = 4 * 1024 * 1024
#: When a letter is tried again that the queue refused, or that could not be read.
KEPT_FOR: Final = timedelta(seconds=30)
#: How often an empty spool is looked at.
LOOK_EVERY: Final = timedelta(seconds=1)
#: Pause while nothing takes letters: doubled up to the longest, with jitter.
FIRST_WAIT: Final = timedelta(milliseconds=100)
LONGEST_WAIT: Final = timedelta(seconds=5)
_NOTHING: Final = timedelta(0)


@dataclass(slots=True, kw_only=True)
class SpoolBatch:
    """The result of one batch; `why` is the last reason for which letters were kept."""

    forwarded: int = 0
    kept: int = 0
    refused: int = 0
    damaged: int = 0
    busy: bool = False
    why: str = ""

    @property
    def moved(self) -> int:
        """How many letters wait no longer."""
        return self.forwarded + self.refused + self.damaged

    @property
    def empty(self) -> bool:
        """True if there was nothing to forward, for now."""
        return not (self.moved or self.kept)


@dataclass(slots=True, kw_only=True)
class Forwarder:
    """Forwards batches in order; for one thread. Of several on one spool one works at a time.

    *queue* is what the letters are put into; it is closed when this one leaves.
    """

    spool: SpooledLetters
    queue: Letterbox
    chance: Callable[[], float]
    monotonic: Callable[[], float] = time.monotonic
    _listed: deque[Spooled] = field(default_factory=deque, init=False)
    _confirmed: list[Spooled] = field(default_factory=list, init=False)
    _again_at: dict[str, float] = field(default_factory=dict, init=False)
    _forwarded: int = field(default=0, init=False)
    _wait: timedelta = field(default=FIRST_WAIT, init=False)
    _seldom: LogThrottle = field(init=False)

    def __post_init__(self) -> None:
        self._seldom = LogThrottle(monotonic=self.monotonic)

    def turn(self) -> timedelta:
        """Forward one batch; return how long to wait before the next turn. Never raises."""
        try:
            batch = self.batch()
            if batch.empty and not (batch.busy or self._again_at):
                self._rest()
        except Exception as error:  # noqa: BLE001 - the thread must outlive it: letters wait for it
            self._report("spool_waits", "letters in the spool wait, trying again", error)
            return self._back_off()
        if batch.kept and not batch.moved:
            return self._back_off()
        self._wait = FIRST_WAIT
        if batch.moved:
            return _NOTHING
        return LOOK_EVERY * (0.5 + 0.5 * self.chance())

    def leave(self) -> None:
        """Close what the letters are put into."""
        self.queue.close()

    def batch(self) -> SpoolBatch:
        """Forward the oldest letters that are due; `busy` if another process does it.

        Raises DeadLetterQueueUnavailable where no queue or not the disk can be reached.
        """
        if not self._listed:
            self._list()
        if not self._listed:
            return SpoolBatch()
        with self.spool.alone() as ours:
            return self._forward_next() if ours else SpoolBatch(busy=True)

    def _list(self) -> None:
        """List what waits, once for many batches, without what was tried just now."""
        now, waiting = self.monotonic(), self.spool.waiting()
        known = {one.name for one in waiting}
        self._again_at = {name: at for name, at in self._again_at.items() if name in known}
        self._listed.extend(one for one in waiting if self._again_at.get(one.name, now) <= now)

    def _forward_next(self) -> SpoolBatch:
        self._delete_confirmed()
        due = _next_batch(self._listed)
        try:
            batch = self._forward(due)
        except BaseException:
            self._listed.extendleft(reversed(due))
            raise
        if batch.empty:  # another process has forwarded what this one had listed
            self._listed.clear()
        return batch

    def _forward(self, due: Sequence[Spooled]) -> SpoolBatch:
        batch = SpoolBatch()
        read = [(one, letter) for one in due if (letter := self._read(one, batch)) is not None]
        if not read:
            return batch
        answers = put_all(self.queue, [letter for _, letter in read])
        told = list(zip((one for one, _ in read), answers, strict=True))
        self._confirmed = [one for one, answer in told if answer is None]
        batch.forwarded = len(self._confirmed)
        self._forwarded += batch.forwarded
        self._delete_confirmed()
        for one, answer in told:
            if answer is not None:
                self._refused(one, answer, batch)
        return batch

    def _delete_confirmed(self) -> None:
        """Delete what was forwarded; while that fails nothing else is: it would come twice."""
        if self._confirmed:
            self.spool.done(self._confirmed)
            self._confirmed = []

    def _read(self, one: Spooled, batch: SpoolBatch) -> Outgoing | None:
        try:
            return self.spool.read(one)
        except DecodeError as error:
            self.spool.set_aside(one, Aside.DAMAGED)
            batch.damaged += 1
            _log.error("spool_letter_damaged: %s is set aside: %s", one.name, error)
        except DeadLetterQueueUnavailable as error:
            self._keep(one, str(error), batch)
        return None

    def _refused(self, one: Spooled, answer: str, batch: SpoolBatch) -> None:
        if not isinstance(answer, TooLarge):
            self._keep(one, answer, batch)
            return
        self.spool.set_aside(one, Aside.REFUSED)
        batch.refused += 1
        _log.error("spool_letter_refused: %s is set aside: %s", one.name, answer)

    def _keep(self, one: Spooled, why: str, batch: SpoolBatch) -> None:
        self._again_at[one.name] = self.monotonic() + KEPT_FOR.total_seconds()
        batch.kept += 1
        batch.why = why
        if self._seldom.now("kept"):
            _log.warning("spool_letter_kept: %s, tried again in %s: %s", one.name, KEPT_FOR, why)

    def _rest(self) -> None:
        """Say that the spool is empty again, and let go of connections until it is not."""
        if self._forwarded:
            _log.warning("spool_forwarded: %d dead letters; the spool is empty", self._forwarded)
            self._forwarded = 0
            self.queue.close()

    def _back_off(self) -> timedelta:
        span = self._wait * (0.5 + self.chance())
        self._wait = min(self._wait * 2, LONGEST_WAIT)
        return span

    def _report(self, cause: str, what: str, error: Exception) -> None:
        """Log an outage once a minute."""
        if self._seldom.now(cause):
            known = isinstance(error, AngzarrError)
            _log.error("%s: %s: %s", cause, what, error, exc_info=None if known else error)


def _next_batch(listed: deque[Spooled]) -> list[Spooled]:
    """Take the first of *listed* that make a batch, one at least."""
    taken = [listed.popleft()]
    size = taken[0].size
    while listed and len(taken) < BATCH and size + listed[0].size <= BATCH_BYTES:
        taken.append(listed.popleft())
        size += taken[-1].size
    return taken
