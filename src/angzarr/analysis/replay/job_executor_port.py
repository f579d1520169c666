"""JobWork: the port by which an engine works on replay jobs, one engine a job at a time.

What changes a job names the engine and does nothing once another one holds the job. An engine is a
token that nobody else has; *by* is the worker's name, which the history tells instead.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple, Protocol

from angzarr.analysis.ledger.entry import Entry
from angzarr.analysis.ledger.pruning import PrunableJobs
from angzarr.analysis.replay.job import ItemState, ReplayJob
from angzarr.analysis.replay.job_edit import JobEdit


class Begun(NamedTuple):
    """An entry whose replay has its number; whether it was sent is not noted yet."""

    position: int
    entry_id: str
    replay: int


class Noted(NamedTuple):
    """What became of one that had begun: SENT, REFUSED with the reason, or CHOSEN again."""

    position: int
    state: ItemState
    reason: str = ""


class JobWork(PrunableJobs, Protocol):
    """What an engine does with replay jobs; raises LedgerUnavailable when the database is away."""

    @abstractmethod
    def take(self, engine: str, /, *, lease: timedelta, limit: int) -> list[ReplayJob]:
        """Take up to *limit* jobs that need work, those looked at longest ago first.

        They are *engine*'s for *lease*, counted from each take. Of several jobs over one group
        only the oldest that runs is taken.
        """

    @abstractmethod
    def reconcile(self, job_id: str, engine: str, /, *, by: str = "") -> ReplayJob | None:
        """Count what the entries say of replays under way; None: the job is another engine's.

        What has begun and was never noted is sent if its entry has that replay, else chosen again:
        whether it may go now is asked anew.
        """

    @abstractmethod
    def begin_next(
        self, job_id: str, engine: str, /, *, limit: int, most_replays: int, by: str = ""
    ) -> list[Begun]:
        """Return what has begun and is not noted; if that is nothing, begin up to *limit* more.

        Entries that changed since they were chosen, and those with *most_replays*, are refused.
        """

    @abstractmethod
    def note(
        self,
        job_id: str,
        engine: str,
        noted: Sequence[Noted],
        /,
        *,
        said: str = "",
        by: str = "",
    ) -> ReplayJob | None:
        """Note what was sent and refused, and for what the job waits.

        One noted as CHOSEN, which its entry says has begun, is SENT.
        """

    @abstractmethod
    def job_edit(self, job_id: str, /) -> JobEdit | None:
        """Return the edit that a job carries, as it was given when the job began.

        Raises DecodeError for one that cannot be read.
        """

    @abstractmethod
    def owners(self, entries: Sequence[Entry], /) -> Mapping[str, str]:
        """Return by entry id the job that has an entry, or sent its last replay."""
