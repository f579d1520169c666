"""ReplayJob: the replay of many entries that begins with a canary and stops itself (spec A4).

The nouns and the port that people use. How a job goes on is `job_rules`; the verbs by which an
engine works on it are in `job_work`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from angzarr.analysis.ledger.entry import Entry, HistoryLine, Status
from angzarr.analysis.ledger.ledger import ANY, EntryFilter
from angzarr.analysis.ledger.replay_options import Expectation, ReplayOrder
from angzarr.analysis.replay.job_edit import JobEdit
from angzarr.errors import ConfigurationError

#: Entries replayed by the end of each stage; what is left follows in a last stage without bound.
DEFAULT_STAGES: Final = (1, 5, 25)
#: How long an engine may hold a job without saying so again.
JOB_LEASE: Final = timedelta(seconds=15)
#: Stages that a plan may have; each waits for its slowest replay.
_MOST_STAGES: Final = 20


class JobStatus(StrEnum):
    """Where a replay job stands."""

    PROPOSED = "proposed"  # waits for a second person's approval
    RUNNING = "running"
    PAUSED = "paused"  # a person paused it; it goes on when a person says so
    HALTED = "halted"  # it stopped itself: too many of what it replayed failed again
    CANCELLED = "cancelled"
    DONE = "done"


#: A job in none of these keeps its entries to itself, whatever a newer release calls its status.
ENDED: Final = frozenset({JobStatus.CANCELLED, JobStatus.DONE})


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """How a replay job goes about it. Raises ConfigurationError for values that cannot work."""

    #: Entries replayed by the end of each stage, rising; the first stage is the canary.
    stages: tuple[int, ...] = DEFAULT_STAGES
    #: Replays a second at most, over the whole job; None: no limit.
    rate: float | None = 50.0
    #: Replays under way at a time, at most: what may fail before it is noticed.
    in_flight: int = 100
    #: The job halts when more than this share of what was answered lately failed again.
    halt_share: float = 0.2
    #: Where its replays go, if not to where their letters came from; see `ReplayOrder`.
    to_queue: str = ""
    to_handler: str = ""
    sequence: Expectation = Expectation.AS_IS
    #: Whether an edit that got no answer is left out, which a replay else sends again.
    original: bool = False

    def __post_init__(self) -> None:
        rising = all(a < b for a, b in zip((0, *self.stages), self.stages, strict=False))
        if not rising or len(self.stages) > _MOST_STAGES:
            msg = f"the stages of a replay job must rise, like 1, 5, 25; {_MOST_STAGES} at most"
            raise ConfigurationError(msg)
        if self.rate is not None and not 0 < self.rate < float("inf"):
            msg = "the rate of a replay job must be more than 0 a second"
            raise ConfigurationError(msg)
        if self.in_flight < 1:
            msg = "a replay job needs 1 or more in flight"
            raise ConfigurationError(msg)
        if not 0 <= self.halt_share < 1:
            msg = "the halt share of a replay job must be 0 or more and less than 1"
            raise ConfigurationError(msg)

    @property
    def order(self) -> ReplayOrder:
        """Where each of its replays goes, and how."""
        return ReplayOrder(
            to_queue=self.to_queue, to_handler=self.to_handler, sequence=self.sequence
        )


#: The plan of a job over one entry.
ONE_ENTRY: Final = JobPlan(stages=(1,))


def plan_for(order: ReplayOrder, *, original: bool = False) -> JobPlan:
    """Return the plan of a job that sends one entry as *order* says."""
    return replace(
        ONE_ENTRY,
        to_queue=order.to_queue,
        to_handler=order.to_handler,
        sequence=order.sequence,
        original=original,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which entries a job replays; fixed when the job begins, so that its content never shifts.

    Without `status` and ids: what nobody is done with. Entries that cannot be replayed now
    (`transition.replayable`) and those of another unfinished job are not chosen.
    """

    wanted: EntryFilter = ANY
    status: Status | None = None
    #: Entries by id; then `wanted` and `status` are not asked.
    entry_ids: tuple[str, ...] = ()
    #: That many at most, those that failed longest ago.
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
    #: The handlers that are called, whose breakers are watched.
    handlers: tuple[str, ...] = ()
    #: Entries chosen, and of those: sent, handled, failed again, not sent for a reason of their
    #: own, without an answer in time.
    total: int = 0
    sent: int = 0
    handled: int = 0
    failed: int = 0
    refused: int = 0
    unanswered: int = 0
    #: Goes up when a paused or halted job is resumed: each round begins with a canary.
    round: int = 1
    #: The stage under way, from 0; what it has sent, and how many of those were answered.
    stage: int = 0
    stage_sent: int = 0
    stage_answered: int = 0
    #: The last answers of the stage, the newest last: ``h`` handled, ``f`` failed.
    recent: str = ""
    #: Replays that the rate allows at `filled_at`; None: as many as it ever does.
    tokens: float = 0.0
    filled_at: datetime | None = None
    approved_by: str = ""
    #: The SHA-256 of the edited letter that it sends, see `JobEdit`; empty: letters as they are.
    edit: str = ""
    ended_at: datetime | None = None
    revision: int = 1

    @property
    def group(self) -> str:
        """The group whose entries it replays; empty where it was chosen otherwise."""
        return "" if self.selection.entry_ids else (self.selection.wanted.fingerprint or "")

    @property
    def answered(self) -> int:
        """Replays of which it is known how they ended."""
        return self.handled + self.failed + self.unanswered

    @property
    def out(self) -> int:
        """Replays under way."""
        return self.sent - self.answered

    @property
    def left(self) -> int:
        """Entries that were neither sent nor refused."""
        return self.total - self.sent - self.refused


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPage:
    """Jobs, the newest first; `next` is the cursor of the next page, or empty."""

    jobs: tuple[ReplayJob, ...]
    next: str = ""


class Candidate(NamedTuple):
    """An entry that fits a selection, and the other unfinished job that has it, if one does."""

    entry: Entry
    job: str = ""


class ItemState(StrEnum):
    """Where one entry of a job stands."""

    CHOSEN = "chosen"
    BEGUN = "begun"  # its replay has a number and may have been sent
    SENT = "sent"
    HANDLED = "handled"
    FAILED = "failed"
    UNANSWERED = "unanswered"
    PARKED = "parked"  # it waits in its lane behind an earlier event; counted as unanswered
    REFUSED = "refused"


#: Entries in none of these are the job's own until it has ended.
ENDED_STATES: Final = frozenset(
    {
        ItemState.HANDLED,
        ItemState.FAILED,
        ItemState.UNANSWERED,
        ItemState.PARKED,
        ItemState.REFUSED,
    }
)


class JobItem(NamedTuple):
    """One entry of a job; `replay` is the number that it has, or while it is chosen the next one.

    0: chosen by a release that did not say which.
    """

    position: int
    entry_id: str
    state: ItemState
    replay: int = 0
    #: The round in which it was sent.
    round: int = 0
    #: Why it was refused.
    reason: str = ""


class ReplayJobs(Protocol):
    """What people do with replay jobs; raises LedgerUnavailable when the database is away.

    A verb that names a *revision* is done to the job as it is there, and to none that went on.
    """

    @abstractmethod
    def would_choose(self, selection: Selection, /, *, limit: int) -> list[Candidate]:
        """Return the first *limit* that `begin` looks at, as it does; it takes those of no job."""

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
        """Return the edit that a job carries, as it was given when the job began.

        Raises DecodeError for one that cannot be read.
        """

    @abstractmethod
    def open_job(self, job_id: str, /) -> ReplayJob | None:
        """Return a job."""

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
        """Return a page of jobs in one of *statuses* (none named: any), newest first.

        With *group*, those alone that were begun for this fingerprint; empty: for no one group.
        With *prefix*, those whose ids begin so.
        Raises ValueError on a cursor that is none.
        """

    @abstractmethod
    def items(
        self, job_id: str, states: Sequence[ItemState] = (), /, *, limit: int = 100, after: int = 0
    ) -> list[JobItem]:
        """Return entries of a job in one of *states*, in its order, behind position *after*."""

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
        """Return what happened to a job and who did it, oldest line first."""

    @abstractmethod
    def close(self) -> None:
        """Let connections go; safe to call twice."""
