"""Pruning: the analysis worker's duty that removes entries which were closed long ago.

It never removes one that anybody may still have to do something about.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Protocol

from angzarr.analysis.entry import Status
from angzarr.clock import Clock

_log = logging.getLogger("angzarr.analysis")

#: How long a worker that found no more to remove waits until it looks again.
PAUSE: Final = timedelta(minutes=5)
#: Entries removed in one turn, so that letters do not wait and no lock is held for long.
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


@dataclass(slots=True, kw_only=True)
class Pruning:
    """Removes closed entries, a batch a turn until there are none, then pauses."""

    ledger: Prunable
    retention: Retention
    clock: Clock
    batch: int = BATCH
    name: str = field(default="closed entries", init=False)
    _next: datetime | None = field(default=None, init=False)
    _removed: int = field(default=0, init=False)

    def turn(self, wait: timedelta) -> int:  # noqa: ARG002 - letters are what it waits for
        """Remove a batch, unless it is too early to look."""
        now = self.clock.now()
        ends = self.retention.ends(now)
        if not ends or (self._next is not None and now < self._next):
            return 0
        removed = self.ledger.prune(ends, limit=self.batch)
        self._removed += removed
        if removed < self.batch:
            self._next = now + PAUSE
            self._tell()
        return removed

    def _tell(self) -> None:
        if self._removed:
            _log.info("removed %s entries that were closed long ago", f"{self._removed:,}")
        self._removed = 0
