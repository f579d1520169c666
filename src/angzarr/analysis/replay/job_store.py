"""Job store: the ports by which people and engines work on replay jobs.

One engine works on a job at a time: a change names the engine, and does nothing once another one
holds the job. An engine is a unique token; *by* is the worker's name, which the history shows.
`JobCommands` holds what people do to a job, for every adapter.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol, TypeAlias

from angzarr.analysis.ledger.entry import Entry, HistoryLine
from angzarr.analysis.replay import job_progress
from angzarr.analysis.replay.job import (
    Candidate,
    ItemState,
    JobEdit,
    JobItem,
    JobPage,
    JobPlan,
    JobStatus,
    ReplayJob,
    Selection,
)
from angzarr.clock import Clock


class ReplayJobs(Protocol):
    """The actions of people on replay jobs; raises LedgerUnavailable without the database.

    A verb that names a *revision* is done to the job as it is there, and to none that went on.
    """

    @abstractmethod
    def would_choose(self, selection: Selection, /, *, limit: int) -> list[Candidate]:
        """The first *limit* that `begin` looks at, as it does; it takes those of no job."""

    @abstractmethod
    def begin(
        self,
        selection: Selection,
        plan: JobPlan,
        /,
        *,
        by: str,
        note: str = "",
        job_id: str = "",
        approval_over: int | None = None,
        edit: JobEdit | None = None,
        redirects_wait: bool = False,
    ) -> ReplayJob:
        """Choose the entries and store the job; the same *job_id* twice is one job.

        One of more than *approval_over* entries is only proposed, and one with an *edit* that
        needs approval; an edit is for the one entry that is chosen. So is, if *redirects_wait*, one
        whose plan sends its entries elsewhere. One without entries is done, and not kept.
        """

    @abstractmethod
    def job_edit(self, job_id: str, /) -> JobEdit | None:
        """The edit that a job carries, as it was given when the job began.

        Raises DecodeError for one that cannot be read.
        """

    @abstractmethod
    def open_job(self, job_id: str, /) -> ReplayJob | None:
        """A job."""

    @abstractmethod
    def get_jobs(
        self,
        statuses: Sequence[JobStatus] = (),
        /,
        *,
        group: str | None = None,
        prefix: str = "",
        limit: int = 50,
        after: str = "",
    ) -> JobPage:
        """A page of jobs in one of *statuses* (none named: any), newest first.

        With *group*, those alone that were begun for this fingerprint; empty: for no one group.
        With *prefix*, those whose ids begin so.
        Raises ValueError on a cursor that is none.
        """

    @abstractmethod
    def items(
        self, job_id: str, states: Sequence[ItemState] = (), /, *, limit: int = 100, after: int = 0
    ) -> list[JobItem]:
        """Entries of a job in one of *states*, in its order, behind position *after*."""

    @abstractmethod
    def approve(self, job_id: str, /, *, by: str, revision: int | None = None) -> ReplayJob | None:
        """Let a proposed job begin; None for any other, and for the person who proposed it."""

    @abstractmethod
    def pause(self, job_id: str, /, *, by: str, revision: int | None = None) -> ReplayJob | None:
        """Let nothing more begin until it is resumed; None unless it runs."""

    @abstractmethod
    def resume(self, job_id: str, /, *, by: str, revision: int | None = None) -> ReplayJob | None:
        """Go on with a paused or halted job, in a new canary; None for any other."""

    @abstractmethod
    def cancel(self, job_id: str, /, *, by: str, revision: int | None = None) -> ReplayJob | None:
        """End an unfinished job; what is under way is answered, nothing more begins."""

    @abstractmethod
    def job_history(self, job_id: str, /) -> tuple[HistoryLine, ...]:
        """The history of a job, oldest line first."""

    @abstractmethod
    def close(self) -> None:
        """Let connections go; safe to call twice."""


class Begun(NamedTuple):
    """An entry whose replay has its number; whether it was sent is not noted yet."""

    position: int
    entry_id: str
    replay: int


class Noted(NamedTuple):
    """The result of one that had begun: SENT, REFUSED with the reason, or CHOSEN again."""

    position: int
    state: ItemState
    reason: str = ""


class JobWork(Protocol):
    """The actions of an engine on replay jobs; raises LedgerUnavailable without the database."""

    @abstractmethod
    def prune(self, before: datetime, /, *, limit: int) -> int:
        """Remove up to *limit* entries of jobs that ended before then, and the jobs left without.

        Returns how many of both. A job stays while replays of it are under way, and while its group
        has open entries: what may begin by itself is judged by the jobs before it.
        """

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
        """The replays begun and not noted; if there are none, begin up to *limit* more.

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
        """The edit that a job carries, as it was given when the job began.

        Raises DecodeError for one that cannot be read.
        """

    @abstractmethod
    def owners(self, entries: Sequence[Entry], /) -> Mapping[str, str]:
        """The job, by entry id, that has an entry, or sent its last replay."""


#: From a job to what becomes of it; None: it stays as it is.
JobRule: TypeAlias = Callable[[ReplayJob, datetime, str], ReplayJob | None]


class JobCommands(ABC):
    """The verbs of `ReplayJobs` that begin a job, or change one that is in the right state."""

    _clock: Clock

    @abstractmethod
    def _fill(
        self,
        fresh: ReplayJob,
        approval_over: int | None,
        edit: JobEdit | None,
        /,
        *,
        redirects_wait: bool,
    ) -> ReplayJob:
        """Store *fresh* as `job_progress.filled` says, or return the job that has its id."""

    @abstractmethod
    def _mark(self, job_id: str, rule: JobRule, by: str, /) -> ReplayJob | None:
        """Apply *rule* to a job atomically, and add to its history."""

    def begin(
        self,
        selection: Selection,
        plan: JobPlan,
        *,
        by: str,
        note: str = "",
        job_id: str = "",
        approval_over: int | None = None,
        edit: JobEdit | None = None,
        redirects_wait: bool = False,
    ) -> ReplayJob:
        """Choose the entries and store the job, in one transaction."""
        fresh = ReplayJob(
            id=job_id or uuid.uuid4().hex[:12],
            selection=selection,
            plan=plan,
            created_by=by,
            created_at=self._clock.now(),
            note=note,
            edit=edit.sha256 if edit else "",
        )
        return self._fill(fresh, approval_over, edit, redirects_wait=redirects_wait)

    def approve(self, job_id: str, *, by: str, revision: int | None = None) -> ReplayJob | None:
        """Let a proposed job begin."""
        return self._mark(job_id, _seen_at(revision, job_progress.approved), by)

    def pause(self, job_id: str, *, by: str, revision: int | None = None) -> ReplayJob | None:
        """Let nothing more begin."""
        return self._mark(job_id, _seen_at(revision, job_progress.paused), by)

    def resume(self, job_id: str, *, by: str, revision: int | None = None) -> ReplayJob | None:
        """Go on in a new canary."""
        return self._mark(job_id, _seen_at(revision, job_progress.resumed), by)

    def cancel(self, job_id: str, *, by: str, revision: int | None = None) -> ReplayJob | None:
        """End a job."""
        return self._mark(job_id, _seen_at(revision, job_progress.cancelled), by)


def _seen_at(revision: int | None, rule: JobRule) -> JobRule:
    """*rule* for a job that is as it was seen; None: however it is."""

    def make(job: ReplayJob, now: datetime, by: str) -> ReplayJob | None:
        return rule(job, now, by) if revision in {None, job.revision} else None

    return make
