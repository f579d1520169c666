"""Depth: how many letters lie in the dead-letter queues, asked of the queues themselves.

Letters that no analysis worker reads are in no ledger: only their queue knows of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, NamedTuple, Protocol, runtime_checkable

from angzarr.clock import Clock
from angzarr.dead_letters.queue import CountsWaiting, DeadLetterQueue

#: Depths that are known for longer than so many turns are not reported any more.
_TURNS_KNOWN: Final = 3
#: How often who does not ask looks whether it is to: shorter than monitors mostly ask, so that
#: gauges are not missing for long where the worker that told them died.
LOOK_EVERY: Final = timedelta(seconds=10)


class QueueDepth(NamedTuple):
    """The depth of a queue for the letters of one domain."""

    #: Letters that no reader has in hand.
    waiting: int
    #: Letters that it keeps, on Kafka also those that were read.
    kept: int
    #: Since when the oldest of those that wait is there; None: none waits, or it cannot tell.
    oldest_at: datetime | None = None


@runtime_checkable
class TellsDepth(Protocol):
    """A dead-letter queue that can tell more than how many letters wait."""

    def depths(self, domains: Sequence[str], /) -> Mapping[str, QueueDepth]:
        """The depth of each of *domains*; it may lag, takes nothing and creates nothing."""


class DepthDuty(Protocol):
    """Whose duty it is to ask, of several processes."""

    def is_ours(self) -> bool:
        """True if this process is to ask."""

    def end(self) -> None:
        """Leave it to others."""


class SaidDepths(NamedTuple):
    """The answer of a place, and its time."""

    at: datetime
    depths: Mapping[str, QueueDepth]


def depths_of(queue: DeadLetterQueue, domains: Sequence[str]) -> Mapping[str, QueueDepth]:
    """The depth of each of *domains*; nothing where *queue* cannot tell.

    Raises DeadLetterQueueUnavailable.
    """
    if isinstance(queue, TellsDepth):
        return queue.depths(domains)
    if isinstance(queue, CountsWaiting):
        counts = queue.waiting(domains)
        return {domain: QueueDepth(count, count) for domain, count in counts.items()}
    return {}


@dataclass(slots=True, kw_only=True)
class DepthWatch:
    """Asks each place for the depth of its queues, in turns. Fulfils `Turns`; never raises.

    A place is opened for each turn and closed after it: nothing of it lasts in a process that has
    other things to do.
    """

    #: By name: what opens the queue of a backend.
    places: Mapping[str, Callable[[], DeadLetterQueue]]
    domains: Sequence[str]
    clock: Clock
    #: A random number from 0 to 1: a fleet must not ask at one moment.
    chance: Callable[[], float]
    every: timedelta
    #: Called for a place that did not answer.
    failed: Callable[[str, Exception], None]
    #: Which process of a fleet asks; None: this one does. The others report nothing.
    duty: DepthDuty | None = None
    _said: dict[str, SaidDepths] = field(default_factory=dict, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def turn(self) -> timedelta:
        """Ask every place once, if that is ours; return how long to wait before the next turn."""
        if not self._is_ours():
            with self._lock:
                self._said.clear()
            return LOOK_EVERY * self._spread()
        for name, opened in self.places.items():
            try:
                with closing(opened()) as queue:
                    said = SaidDepths(self.clock.now(), depths_of(queue, self.domains))
            except Exception as error:  # noqa: BLE001 - the thread must outlive it
                self.failed(name, error)
                continue
            with self._lock:
                self._said[name] = said
        return self.every * self._spread()

    def leave(self) -> None:
        """Leave it to others; nothing is open between two turns."""
        if self.duty is not None:
            self.duty.end()

    def _is_ours(self) -> bool:
        try:
            return self.duty is None or self.duty.is_ours()
        except Exception as error:  # noqa: BLE001 - the thread must outlive it
            self.failed("the claim store", error)
            return False

    def _spread(self) -> float:
        return 0.75 + 0.5 * self.chance()

    def depths(self) -> dict[str, QueueDepth]:
        """The depths by domain, from all places that answered lately."""
        until = self.clock.now() - self.every * _TURNS_KNOWN
        with self._lock:
            lately = [said.depths for said in self._said.values() if said.at >= until]
        found: dict[str, QueueDepth] = {}
        for depths in lately:
            for domain, depth in depths.items():
                found[domain] = _both(found[domain], depth) if domain in found else depth
        return found


def _both(one: QueueDepth, other: QueueDepth) -> QueueDepth:
    oldest = [depth.oldest_at for depth in (one, other) if depth.oldest_at is not None]
    return QueueDepth(one.waiting + other.waiting, one.kept + other.kept, min(oldest, default=None))
