"""ReplayJob: the replay of many entries that begins with a canary and stops itself (spec A4)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, Protocol

from angzarr.analysis.entry import HistoryLine, Status
from angzarr.analysis.ledger import ANY, EntryFilter
from angzarr.errors import ConfigurationError

#: Entries replayed by the end of each stage; what is left follows in a last stage without bound.
DEFAULT_STAGES: Final = (1, 5, 25)


class JobStatus(StrEnum):
    """Where a replay job stands."""

    PROPOSED = "proposed"  # waits for a second person's approval
    RUNNING = "running"
    PAUSED = "paused"  # a person paused it; it goes on when a person says so
    HALTED = "halted"  # it stopped itself: too many of what it replayed failed again
    CANCELLED = "cancelled"
    DONE = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """How a replay job goes about it. Raises ConfigurationError for values that cannot work."""

    #: Entries replayed by the end of each stage, rising.
    stages: tuple[int, ...] = DEFAULT_STAGES
    #: Replays a second at most, over the whole job; None: no limit.
    rate: float | None = 50.0
    #: Replays under way at a time, at most: what may fail before it is noticed.
    in_flight: int = 100
    #: The job halts when more than this share of what was answered lately failed again.
    halt_share: float = 0.2

    def __post_init__(self) -> None:
        rising = all(a < b for a, b in zip((0, *self.stages), self.stages, strict=False))
        if not rising:
            msg = "the stages of a replay job must rise, like 1, 5, 25"
            raise ConfigurationError(msg)
        if self.rate is not None and not self.rate > 0:
            msg = "the rate of a replay job must be more than 0 a second"
            raise ConfigurationError(msg)
        if self.in_flight < 1:
            msg = "a replay job needs 1 or more in flight"
            raise ConfigurationError(msg)
        if not 0 <= self.halt_share < 1:
            msg = "the halt share of a replay job must be 0 or more and less than 1"
            raise ConfigurationError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which entries a job replays; fixed when the job begins, so that its content never shifts."""

    wanted: EntryFilter = ANY
    status: Status | None = None
    #: Entries by id; then `wanted` and `status` are not asked.
    entry_ids: tuple[str, ...] = ()
    limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayJob:
    """A job and how far it is. Times are UTC-aware."""

    id: str
    selection: Selection
    plan: JobPlan
    status: JobStatus = JobStatus.RUNNING
    #: Why it is paused or halted, or for what it waits; one sentence.
    said: str = ""
    created_by: str
    created_at: datetime
    #: Why a person wants it.
    note: str = ""
    #: Entries chosen, and of those: sent, handled, failed again, not sent for a reason of their
    #: own, without an answer in time.
    total: int = 0
    sent: int = 0
    handled: int = 0
    failed: int = 0
    refused: int = 0
    unanswered: int = 0
    #: The stage under way, from 0.
    stage: int = 0
    ended_at: datetime | None = None
    revision: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPage:
    """Jobs, the newest first; `next` is the cursor of the next page, or empty."""

    jobs: tuple[ReplayJob, ...]
    next: str = ""


class ReplayJobs(Protocol):
    """What people do with replay jobs; raises LedgerUnavailable when the database is away.

    The verbs by which an engine works on them are its own port, beside it.
    """

    @abstractmethod
    def begin(
        self, selection: Selection, plan: JobPlan, /, *, by: str, note: str = "", job_id: str = ""
    ) -> ReplayJob:
        """Choose the entries and store the job; the same *job_id* twice is one job."""

    @abstractmethod
    def open_job(self, job_id: str, /) -> ReplayJob | None:
        """Return a job."""

    @abstractmethod
    def get_jobs(
        self, statuses: Sequence[JobStatus] = (), /, *, limit: int = 50, after: str = ""
    ) -> JobPage:
        """Return a page of jobs in one of *statuses* (none named: any)."""

    @abstractmethod
    def pause(self, job_id: str, /, *, by: str) -> ReplayJob | None:
        """Let nothing more begin until it is resumed; None unless it runs."""

    @abstractmethod
    def resume(self, job_id: str, /, *, by: str) -> ReplayJob | None:
        """Go on with a paused or halted job, in a new canary; None for any other."""

    @abstractmethod
    def cancel(self, job_id: str, /, *, by: str) -> ReplayJob | None:
        """End a job; what is under way is answered, nothing more begins."""

    @abstractmethod
    def job_history(self, job_id: str, /) -> tuple[HistoryLine, ...]:
        """Return what happened to a job and who did it, oldest line first."""


#: How long an engine may hold a job without saying so again.
JOB_LEASE: Final = timedelta(seconds=15)
