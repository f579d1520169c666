"""Job marking: people's changes of a replay job, for every adapter that can change one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import datetime
from typing import TypeAlias

from angzarr.analysis import job_rules
from angzarr.analysis.job import ReplayJob

#: From a job to what becomes of it; None: it stays as it is.
JobRule: TypeAlias = Callable[[ReplayJob, datetime, str], ReplayJob | None]


class JobMarking(ABC):
    """The verbs of `ReplayJobs` that change one job if it is in the right state."""

    @abstractmethod
    def _mark(self, job_id: str, rule: JobRule, by: str, /) -> ReplayJob | None:
        """Apply *rule* to a job atomically, and add to its history."""

    def approve(self, job_id: str, *, by: str) -> ReplayJob | None:
        """Let a proposed job begin."""
        return self._mark(job_id, job_rules.approved, by)

    def pause(self, job_id: str, *, by: str) -> ReplayJob | None:
        """Let nothing more begin."""
        return self._mark(job_id, job_rules.paused, by)

    def resume(self, job_id: str, *, by: str) -> ReplayJob | None:
        """Go on in a new canary."""
        return self._mark(job_id, job_rules.resumed, by)

    def cancel(self, job_id: str, *, by: str) -> ReplayJob | None:
        """End a job."""
        return self._mark(job_id, job_rules.cancelled, by)
