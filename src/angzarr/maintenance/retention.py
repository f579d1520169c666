"""Pruning: removes records that are no longer needed, a batch at a time."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, NamedTuple, Protocol

from angzarr.clock import Clock
from angzarr.errors import text_of

_log = logging.getLogger("angzarr.pruning")

#: How long whoever found no more to remove waits until he looks again.
PAUSE: Final = timedelta(minutes=5)
#: Rows removed at a time, so that nobody waits and no lock is held for long.
BATCH: Final = 500
#: How long a thread that does nothing else waits between two batches.
BREATH: Final = timedelta(seconds=1)
#: How long it waits, on average, once it found no more, or nobody to ask.
HOURLY: Final = timedelta(hours=1)


class Removed(NamedTuple):
    """What one batch removed, and whether there may be more."""

    number: int
    more: bool


class Removal(Protocol):
    """What may go some day. *what* it is stands in the log: ``entries that were closed long ago``.

    Each call removes a batch; it raises Unavailable.
    """

    name: str
    what: str

    def remove(self, now: datetime) -> Removed:
        """Remove a batch of what is not kept at *now*."""


class Dated(Protocol):
    """What can be removed by its age alone."""

    @abstractmethod
    def prune(self, before: datetime, /, *, limit: int) -> int:
        """Remove up to *limit* of what is done with since before then; return how many."""


@dataclass(slots=True, kw_only=True)
class Aged:
    """What is kept for a while once it is done with."""

    name: str
    what: str
    where: Dated
    #: For how long; None: for ever.
    keep: timedelta | None
    batch: int = BATCH

    def remove(self, now: datetime) -> Removed:
        """Remove a batch; asks nothing where all is kept for ever."""
        if self.keep is None:
            return Removed(0, more=False)
        number = self.where.prune(now - self.keep, limit=self.batch)
        return Removed(number, number == self.batch)


@dataclass(slots=True, kw_only=True)
class Pruning:
    """Removes what is not kept any more, a batch a turn until there is none, then pauses."""

    removal: Removal
    clock: Clock
    pause: timedelta = PAUSE
    name: str = field(init=False)
    _next: datetime | None = field(default=None, init=False)
    _removed: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.name = self.removal.name

    def turn(self, wait: timedelta) -> int:  # noqa: ARG002 - letters are what it waits for
        """Remove a batch, unless it is too early to look."""
        now = self.clock.now()
        if self._next is not None and now < self._next:
            return 0
        removed, more = self.removal.remove(now)
        self._removed += removed
        if not more:
            self._next = now + self.pause
            self._tell()
        return removed

    def _tell(self) -> None:
        if self._removed:
            _log.info("removed %s %s", f"{self._removed:,}", self.removal.what)
        self._removed = 0


@dataclass(slots=True, kw_only=True)
class PruningTurns:
    """Fulfils `Turns`; any number of processes may do it at once: each passes over others' rows."""

    prunings: Sequence[Pruning]
    chance: Callable[[], float]
    close: Callable[[], None]

    def turn(self) -> timedelta:
        """Remove a batch of each; return how long to wait before the next turn. Never raises."""
        removed = [self._removed(pruning) for pruning in self.prunings]
        return BREATH if any(removed) else HOURLY * (0.5 + self.chance())

    def _removed(self, pruning: Pruning) -> int:
        try:
            return pruning.turn(timedelta(0))
        except Exception as error:  # noqa: BLE001 - it is kept, and looked for again
            _log.warning("pruning_waits: %s: %s", pruning.name, text_of(error))
            return 0

    def leave(self) -> None:
        """Let connections go."""
        self.close()
