"""Job limits: how many replays of a job may begin now, and who must approve it (A4, A5). Pure.

Many small jobs of one person add up to a large one. What halts a job is in `job_progress`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from angzarr.analysis.classification.evidence import BreakerSeen
from angzarr.analysis.replay.job import AUTOMATIC, ENDED, JobEdit, JobPlan, JobStatus, ReplayJob
from angzarr.resilience.breaker import Phase

#: How long a job that ended counts beside others of the person who began it.
ADDED_UP: Final = timedelta(days=1)
#: The user of a dashboard without tokens: any person at its machine.
LOCAL: Final = "local"
#: A job of fewer entries never waits because of their number.
_MANY: Final = 2


def waits_for(
    total: int,
    besides: int,
    approval_over: int | None,
    edit: JobEdit | None = None,
    elsewhere: str = "",
) -> str:
    """Say why a job of *total* entries waits for a second person, or nothing.

    One entry never does but for its *edit*, or for where it is sent *elsewhere*, if that is given.
    """
    if total and edit is not None and edit.needs_approval:
        return "an edit: a second person must approve"
    if total and elsewhere:
        return f"sent {elsewhere}: a second person must approve"
    if approval_over is None or total < _MANY or total + besides <= approval_over:
        return ""
    others = f", with {besides} of other jobs of the last day" if besides else ""
    return f"more than {approval_over} entries{others}: a second person must approve"


def others_matter(total: int, approval_over: int | None) -> bool:
    """True if `besides` can change what becomes of a job of *total* entries."""
    return approval_over is not None and _MANY <= total <= approval_over


def besides(others: Iterable[ReplayJob], job: ReplayJob) -> int:
    """Count the entries that *job*'s proposer has replayed, or will, without a second person.

    Of a person: by all other jobs that are unfinished or ended within `ADDED_UP`, under any of the
    person's names. Of the automatic recovery, which needs no second person: by unfinished ones
    over the same group.
    """
    counted = (one for one in others if one.id != job.id and _adds_up(one, job))
    return sum(one.total - one.refused if one.ended_at is None else one.sent for one in counted)


def _adds_up(one: ReplayJob, job: ReplayJob) -> bool:
    if one.approved_by or one.status is JobStatus.PROPOSED:
        return False
    if AUTOMATIC in (one.created_by, job.created_by):
        same = (one.created_by, one.group) == (job.created_by, job.group)
        return same and one.status not in ENDED
    lately = one.ended_at is None or one.ended_at > job.created_at - ADDED_UP
    return lately and same_person(one.created_by, job.created_by)


def same_person(one: str, other: str) -> bool:
    """True if two names may be one person's: before an ``@`` they have the same login name.

    A person is ``ada@host`` at a terminal, and what his token says in the dashboard. `LOCAL` may be
    any of them.
    """
    return _login(one) == _login(other) or is_anybody(one) or is_anybody(other)


def is_anybody(name: str) -> bool:
    """True if *name* identifies no person."""
    return _login(name) == LOCAL


def _login(name: str) -> str:
    return name.partition("@")[0].strip().casefold()


#: Seconds whose replays the rate lets out at once after a pause.
BURST: Final = 1.0
#: Into a breaker that lets traffic in gradually, one of so many of a job's replays in flight.
RAMPING_SHARE: Final = 10
#: Phases of a breaker into which nothing is replayed.
BARRED: Final = frozenset({Phase.OPEN, Phase.ISOLATED})
#: Before the time at which a breaker that a job waits for is tried again.
NEXT_PROBE: Final = " (next probe at "
#: Breakers that a job names when it waits for them.
_NAMED: Final = 3


class ReplayCapacity(NamedTuple):
    """How many replays may begin now, and for what the job waits if it is none."""

    most: int
    said: str = ""


class Target(NamedTuple):
    """How the breakers stand around the handlers that a job calls: the worst of them."""

    phase: Phase
    #: Closed, and letting traffic in gradually.
    ramping: bool = False
    #: Those that let nothing through now: the handlers' own, and the guards of their domains.
    barring: tuple[BreakerSeen, ...] = ()


def capacity(job: ReplayJob, now: datetime, target: Target | None) -> ReplayCapacity:
    """The number of replays of *job* that may begin now; *target*: its handlers' breakers.

    Unknown breakers stop nothing: the canary protects.
    """
    if job.status is not JobStatus.RUNNING:
        return ReplayCapacity(0, job.said)
    if target and target.phase in BARRED:
        return ReplayCapacity(0, f"waits: breaker {_named(target.barring, now)}")
    allowed = _in_flight(job.plan, target)
    in_stage = stage_size(job) - job.stage_sent
    free = min(allowed - job.out, in_stage, job.left, _tokens(job, now))
    return ReplayCapacity(max(free, 0))


def _named(barring: Sequence[BreakerSeen], now: datetime) -> str:
    """Name the breakers with the time of their probes: a span would be another at each look."""
    more = f" and {len(barring) - _NAMED} more" if len(barring) > _NAMED else ""
    return ", ".join(_stands(one, now) for one in barring[:_NAMED]) + more


def _stands(one: BreakerSeen, now: datetime) -> str:
    if one.phase is not Phase.OPEN or one.retry_at is None:
        return f"{one.name} is {one.phase}"
    at = one.retry_at.astimezone(UTC)
    day = "" if at.date() == now.astimezone(UTC).date() else f"{at:%Y-%m-%d} "
    return f"{one.name} is {one.phase}{NEXT_PROBE}{day}{at:%H:%M:%S} UTC)"


def stage_size(job: ReplayJob) -> int:
    """The number of entries that the stage under way replays."""
    stages = (0, *job.plan.stages)
    if job.stage + 1 >= len(stages):
        return job.stage_sent + job.left
    return stages[job.stage + 1] - stages[job.stage]


def _in_flight(plan: JobPlan, target: Target | None) -> int:
    """The number of replays that may be under way: few where a breaker lets in few."""
    if target is None:
        return plan.in_flight
    if target.phase is Phase.HALF_OPEN:
        return 1
    return max(plan.in_flight // RAMPING_SHARE, 1) if target.ramping else plan.in_flight


def _tokens(job: ReplayJob, now: datetime) -> int:
    return job.left if job.plan.rate is None else int(tokens_at(job, now) + 1e-9)


def tokens_at(job: ReplayJob, now: datetime) -> float:
    """The tokens of the rate's bucket at *now*; a clock that went back adds none."""
    if job.plan.rate is None:
        return 0.0
    most = max(1.0, job.plan.rate * BURST)
    if job.filled_at is None:
        return most
    passed = max((now - job.filled_at).total_seconds(), 0.0)
    return min(most, job.tokens + passed * job.plan.rate)
