"""How many replays of a job may begin now, and for what it waits if it is none (spec A4). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

from angzarr.analysis.classification.evidence import BreakerSeen
from angzarr.analysis.replay.job import JobPlan, JobStatus, ReplayJob
from angzarr.resilience.breaker import Phase

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


class Room(NamedTuple):
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


def room(job: ReplayJob, now: datetime, target: Target | None) -> Room:
    """Return how many replays of *job* may begin now; *target*: the breakers of its handlers.

    Unknown breakers stop nothing: the canary protects.
    """
    if job.status is not JobStatus.RUNNING:
        return Room(0, job.said)
    if target and target.phase in BARRED:
        return Room(0, f"waits: breaker {_named(target.barring, now)}")
    allowed = _in_flight(job.plan, target)
    in_stage = stage_size(job) - job.stage_sent
    free = min(allowed - job.out, in_stage, job.left, _tokens(job, now))
    return Room(max(free, 0))


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
    """Return how many entries the stage under way replays."""
    stages = (0, *job.plan.stages)
    if job.stage + 1 >= len(stages):
        return job.stage_sent + job.left
    return stages[job.stage + 1] - stages[job.stage]


def _in_flight(plan: JobPlan, target: Target | None) -> int:
    """Return how many replays may be under way: few where a breaker lets in few."""
    if target is None:
        return plan.in_flight
    if target.phase is Phase.HALF_OPEN:
        return 1
    return max(plan.in_flight // RAMPING_SHARE, 1) if target.ramping else plan.in_flight


def _tokens(job: ReplayJob, now: datetime) -> int:
    return job.left if job.plan.rate is None else int(tokens_at(job, now) + 1e-9)


def tokens_at(job: ReplayJob, now: datetime) -> float:
    """Return the tokens of the rate's bucket at *now*; a clock that went back adds none."""
    if job.plan.rate is None:
        return 0.0
    most = max(1.0, job.plan.rate * BURST)
    if job.filled_at is None:
        return most
    passed = max((now - job.filled_at).total_seconds(), 0.0)
    return min(most, job.tokens + passed * job.plan.rate)
