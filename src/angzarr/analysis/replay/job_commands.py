"""Job marking: what people begin and change of replay jobs, for every adapter that keeps some."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import datetime
from typing import TypeAlias

from angzarr.analysis.replay import job_rules
from angzarr.analysis.replay.job import JobPlan, ReplayJob, Selection
from angzarr.analysis.replay.job_edit import JobEdit
from angzarr.clock import Clock

#: From a job to what becomes of it; None: it stays as it is.
JobRule: TypeAlias = Callable[[ReplayJob, datetime, str], ReplayJob | None]


class JobMarking(ABC):
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
        """Store *fresh* as `job_rules.filled` says, or return the job that has its id."""

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
        return self._mark(job_id, _seen_at(revision, job_rules.approved), by)

    def pause(self, job_id: str, *, by: str, revision: int | None = None) -> ReplayJob | None:
        """Let nothing more begin."""
        return self._mark(job_id, _seen_at(revision, job_rules.paused), by)

    def resume(self, job_id: str, *, by: str, revision: int | None = None) -> ReplayJob | None:
        """Go on in a new canary."""
        return self._mark(job_id, _seen_at(revision, job_rules.resumed), by)

    def cancel(self, job_id: str, *, by: str, revision: int | None = None) -> ReplayJob | None:
        """End a job."""
        return self._mark(job_id, _seen_at(revision, job_rules.cancelled), by)


def _seen_at(revision: int | None, rule: JobRule) -> JobRule:
    """Return *rule* for a job that is as it was seen; None: however it is."""

    def make(job: ReplayJob, now: datetime, by: str) -> ReplayJob | None:
        return rule(job, now, by) if revision in {None, job.revision} else None

    return make
