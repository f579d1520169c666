"""Pruning: the analysis worker's duty that removes what nobody needs any more.

It never removes an entry that anybody may still have to do something about.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, NamedTuple, Protocol

from angzarr.analysis.entry import Status
from angzarr.clock import Clock

_log = logging.getLogger("angzarr.analysis")

#: How long a worker that found no more to remove waits until it looks again.
PAUSE: Final = timedelta(minutes=5)
#: Rows removed in one turn, so that letters do not wait and no lock is held for long.
BATCH: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long entries are kept after they were closed; None: for ever."""

    #: Resolved, skipped and compensated ones.
    closed: timedelta | None = None
    archived: timedelta | None = None

    def ends(self, now: datetime) -> dict[Status, datetime]:
        """Return which entries are not kept at *now*: those closed before, by status."""
        spans = {
            Status.RESOLVED: self.closed,
            Status.SKIPPED: self.closed,
            Status.COMPENSATED: self.closed,
            Status.ARCHIVED: self.archived,
        }
        return {status: now - span for status, span in spans.items() if span is not None}


class Prunable(Protocol):
    """A ledger whose closed entries can be removed; raises LedgerUnavailable."""

    @abstractmethod
    def prune(self, before: Mapping[Status, datetime], /, *, limit: int) -> int:
        """Remove up to *limit* entries and return how many.

        They are in one of the statuses, nothing happened to them since the time named beside it,
        and nothing is still to be done. Letter and history go with them. Those that another
        caller is removing are passed over.
        """


class PrunableJobs(Protocol):
    """Replay jobs that can be removed once they have ended; raises LedgerUnavailable."""

    @abstractmethod
    def prune(self, before: datetime, /, *, limit: int) -> int:
        """Remove up to *limit* entries of jobs that ended before then, and the jobs left without.

        Returns how many of both. A job stays while replays of it are under way, and while its group
        has open entries: what may begin by itself is judged by the jobs before it.
        """


class Removed(NamedTuple):
    """What one batch removed, and whether there may be more."""

    number: int
    more: bool


class Removal(Protocol):
    """What may go some day. *what* it is stands in the log: ``entries that were closed long ago``.

    Each call removes a batch; it raises LedgerUnavailable.
    """

    name: str
    what: str

    def remove(self, now: datetime) -> Removed:
        """Remove a batch of what is not kept at *now*."""


@dataclass(slots=True, kw_only=True)
class ClosedEntries:
    """Entries that nobody has to do anything about any more."""

    ledger: Prunable
    retention: Retention
    batch: int = BATCH
    name: str = field(default="closed entries", init=False)
    what: str = field(default="entries that were closed long ago", init=False)

    def remove(self, now: datetime) -> Removed:
        """Remove a batch; asks nothing where all are kept for ever."""
        if not (ends := self.retention.ends(now)):
            return Removed(0, more=False)
        number = self.ledger.prune(ends, limit=self.batch)
        return Removed(number, number == self.batch)


@dataclass(slots=True, kw_only=True)
class EndedJobs:
    """Replay jobs that ended, with their entries and histories."""

    jobs: PrunableJobs
    #: How long they are kept; None: for ever.
    keep: timedelta | None
    batch: int = BATCH
    name: str = field(default="ended jobs", init=False)
    what: str = field(default="replay jobs that ended long ago and entries of them", init=False)

    def remove(self, now: datetime) -> Removed:
        """Remove a batch; a large job goes in several."""
        if self.keep is None:
            return Removed(0, more=False)
        number = self.jobs.prune(now - self.keep, limit=self.batch)
        return Removed(number, number == self.batch)


@dataclass(slots=True, kw_only=True)
class Pruning:
    """Removes what is not kept any more, a batch a turn until there is none, then pauses."""

    removal: Removal
    clock: Clock
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
            self._next = now + PAUSE
            self._tell()
        return removed

    def _tell(self) -> None:
        if self._removed:
            _log.info("removed %s %s", f"{self._removed:,}", self.removal.what)
        self._removed = 0
