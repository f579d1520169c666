"""Upkeep: migrating and recounting the ledger, and removing closed entries and ended jobs.

An entry that still needs anything is never removed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from angzarr.analysis.ledger.entry import Status
from angzarr.analysis.ledger.ledger import Ledger
from angzarr.analysis.replay.job_store import JobWork
from angzarr.maintenance.retention import BATCH, Aged, Removed
from angzarr.maintenance.schema_versions import TablesUpkeep


@dataclass(frozen=True, slots=True, kw_only=True)
class Recounted:
    """One step of a recount."""

    #: How many groups were compared with their entries.
    groups: int
    #: Fingerprints of those that were not counted as they are.
    wrong: tuple[str, ...] = ()


class LedgerUpkeep(TablesUpkeep, Protocol):
    """The ledger as a database to look after; every verb raises LedgerUnavailable."""

    @abstractmethod
    def recount(self, *, fix: bool) -> Iterator[Recounted]:
        """Compare the counts with the entries, and fix them if *fix* is true, step by step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryRetention:
    """How long entries are kept after they were closed; None: for ever."""

    #: Resolved, skipped and compensated ones.
    closed: timedelta | None = None
    archived: timedelta | None = None

    def ends(self, now: datetime) -> dict[Status, datetime]:
        """The moments, by status: entries that were closed before are not kept at *now*."""
        spans = {
            Status.RESOLVED: self.closed,
            Status.SKIPPED: self.closed,
            Status.COMPENSATED: self.closed,
            Status.ARCHIVED: self.archived,
        }
        return {status: now - span for status, span in spans.items() if span is not None}


@dataclass(slots=True, kw_only=True)
class ClosedEntries:
    """Entries that need no more work."""

    ledger: Ledger
    retention: EntryRetention
    batch: int = BATCH
    name: str = field(default="closed entries", init=False)
    what: str = field(default="entries that were closed long ago", init=False)

    def remove(self, now: datetime) -> Removed:
        """Remove a batch; asks nothing where all are kept for ever."""
        if not (ends := self.retention.ends(now)):
            return Removed(0, more=False)
        number = self.ledger.prune(ends, limit=self.batch)
        return Removed(number, number == self.batch)


def ended_jobs(jobs: JobWork, keep: timedelta | None, *, batch: int = BATCH) -> Aged:
    """The removal of replay jobs that ended, with their entries and histories.

    A large job goes in several batches.
    """
    what = "replay jobs that ended long ago and entries of them"
    return Aged(name="ended jobs", what=what, where=jobs, keep=keep, batch=batch)
