"""JobRunner: the analysis worker's duty that carries replay jobs out (spec A4).

An entry gets its number before it is sent, and the ledger lets each number begin once. If a worker
dies, the next engine takes its job up where it stopped. No replay goes through an open breaker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from angzarr.analysis.classification.classify import Unattended
from angzarr.analysis.classification.evidence import BreakerSeen
from angzarr.analysis.classification.evidence_collector import BreakerLook
from angzarr.analysis.ledger.entry import Entry, EntryDetail
from angzarr.analysis.ledger.replay_options import ReplayOrder, carrying
from angzarr.analysis.replay.job import (
    ALTERED,
    AUTOMATIC,
    JOB_LEASE,
    ItemState,
    JobStatus,
    ReplayJob,
    outdated,
)
from angzarr.analysis.replay.job_limits import BARRED, ReplayCapacity, Target, capacity
from angzarr.analysis.replay.job_progress import altered
from angzarr.analysis.replay.job_store import Begun, JobWork, Noted
from angzarr.analysis.replay.replay import CHANGED, Replayer
from angzarr.analysis.worker.intake import BATCH
from angzarr.analysis.worker.worker import may_pass
from angzarr.dead_letters.letter import Refusal
from angzarr.errors import DecodeError, text_of
from angzarr.resilience.breaker import Phase
from angzarr.runtime.failures import LogThrottle, is_machine_fault

_log = logging.getLogger("angzarr.analysis")
#: Jobs worked on in one turn.
MOST_JOBS: Final = 10
#: In seconds.
_AN_HOUR: Final = 3600.0
#: Looks at an entry that others change at the same time, in one turn.
MOST_LOOKS: Final = 3


@dataclass(slots=True, kw_only=True)
class JobRunner:
    """Works on the jobs that it can take, a batch of each in a turn."""

    work: JobWork
    replayer: Replayer
    #: How the worst breaker around these handlers stands; None: not known.
    target: Callable[[Sequence[str]], Target | None]
    #: Says why nothing may be sent now, or nothing.
    barred: Callable[[], str]
    #: The same of what begins by itself, as jobs of the automatic recovery do.
    barred_by_itself: Callable[[], str]
    #: What needs a person, and so is in no job that began by itself.
    unattended: Unattended
    #: Replays after which no job replays an entry, and after which none that began by itself does.
    most_replays: int
    most_by_itself: int
    #: Another one for each process: who holds a job.
    engine: str
    #: The worker's name, as people know it: whom a job's history names.
    worker: str
    batch: int = BATCH
    lease: timedelta = JOB_LEASE
    #: How often is said of a job that it cannot be read: it is tried again in each turn.
    unreadable: LogThrottle = field(default_factory=lambda: LogThrottle(_AN_HOUR))
    name: str = field(default="replay jobs", init=False)

    def turn(self, wait: timedelta) -> int:  # noqa: ARG002 - letters are what it waits for
        """Work on each job; what is away keeps none of the others from its turn."""
        away: list[Exception] = []
        done = 0
        for job in self.work.take(self.engine, lease=self.lease, limit=MOST_JOBS):
            try:
                done += self._work_on(job)
            except Exception as error:
                if may_pass(error):
                    away.append(error)
                    continue
                if not isinstance(error, DecodeError):  # of one job: it holds up no other
                    raise
                if self.unreadable.now(job.id):
                    _log.exception("replay_job_unreadable: %s", job.id)
        if away:
            raise away[-1]
        return done

    def _work_on(self, taken: ReplayJob) -> int:
        """Count answers, begin what may begin; return how much that was.

        Only what this turn begins is sent in it: what a turn before left is asked for anew.
        """
        job = self.work.reconcile(taken.id, self.engine, by=self.worker)
        if job is None:
            return 0
        free = self._room(job)
        if free.said:
            self._note(job, (), free.said)
            return job.answered - taken.answered
        most = self.most_by_itself if job.created_by == AUTOMATIC else self.most_replays
        begun = self.work.begin_next(
            job.id,
            self.engine,
            limit=min(free.most, self.batch),
            most_replays=most,
            by=self.worker,
        )
        return self._send(job, begun) + job.answered - taken.answered

    def _room(self, job: ReplayJob) -> ReplayCapacity:
        """Ask brake and breakers only where something may begin."""
        if job.status is not JobStatus.RUNNING or job.left == 0:
            return capacity(job, self.replayer.clock.now(), None)
        by_itself = job.created_by == AUTOMATIC
        if why := self.barred() or (self.barred_by_itself() if by_itself else ""):
            return ReplayCapacity(0, f"waits: {why}")
        return capacity(job, self.replayer.clock.now(), self.target(job.handlers))

    def _send(self, job: ReplayJob, begun: Sequence[Begun]) -> int:
        """Send what has begun, in half the lease at most; the next turn puts back what is left.

        A replay that the broker did not take has begun: `DueEntries` sends it.
        """
        until = self.replayer.clock.now() + self.lease / 2
        noted: list[Noted] = []
        said = ""
        try:
            for one in begun:
                if self.replayer.clock.now() > until:
                    break
                noted.append(self._replay(job, one))
        except Exception as error:
            if may_pass(error):
                said = f"waits: {text_of(error) or type(error).__name__}"
            raise
        finally:
            self._note(job, noted, said)
        return len(noted)

    def _note(self, job: ReplayJob, noted: Sequence[Noted], said: str) -> None:
        told = job.status is not JobStatus.RUNNING or said == job.said
        if noted or not told:
            self.work.note(job.id, self.engine, noted, said=said, by=self.worker)

    def _replay(self, job: ReplayJob, one: Begun) -> Noted:
        """Send one entry under the number that it has; refused if the entry says so by now.

        One that others keep changing is put back for the next turn.
        """
        for _ in range(MOST_LOOKS):
            noted = self._try(job, one)
            if noted.reason != CHANGED:
                return noted
        return Noted(one.position, ItemState.CHOSEN)

    def _try(self, job: ReplayJob, one: Begun) -> Noted:
        detail = self.replayer.ledger.open(one.entry_id)
        if detail is None:
            return Noted(one.position, ItemState.REFUSED, "the entry was removed meanwhile")
        if detail.entry.replays >= one.replay:  # begun: the store knows by whom
            return Noted(one.position, ItemState.CHOSEN)
        if job.created_by == AUTOMATIC and (why := self._needs_a_person(detail)):
            return Noted(one.position, ItemState.REFUSED, why)
        order = self._order(job, detail.entry)
        if isinstance(order, Refusal):
            return Noted(one.position, ItemState.REFUSED, order)
        problem = self.replayer.replay(
            detail.entry, detail.failure, by=asker(job), order=order, original=job.plan.original
        )
        if problem:
            return Noted(one.position, ItemState.REFUSED, problem)
        return Noted(one.position, ItemState.SENT)

    def _needs_a_person(self, detail: EntryDetail) -> str:
        age = self.replayer.clock.now() - detail.entry.last_failed_at
        return self.unattended.problem(detail.failure, age)

    def _order(self, job: ReplayJob, entry: Entry) -> ReplayOrder | Refusal:
        """The order of *job* for *entry*: its edit only unaltered, and of it as it is."""
        if not job.edit:
            return job.plan.order
        try:
            edit = self.work.job_edit(job.id)
        except DecodeError as error:
            if is_machine_fault(error):
                raise
            return Refusal(ALTERED)
        if edit is None or altered(job, edit):
            return Refusal(ALTERED)
        if why := outdated(edit, entry):
            return Refusal(why)
        return carrying(job.plan.order, edit.order)


#: The worst first.
_ORDER: Final = (
    Target(Phase.ISOLATED),
    Target(Phase.OPEN),
    Target(Phase.HALF_OPEN),
    Target(Phase.CLOSED, ramping=True),
    Target(Phase.CLOSED),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetPhases:
    """Asks for the breakers around handlers; None: they cannot be asked for."""

    look: BreakerLook | None

    def __call__(self, handlers: Sequence[str]) -> Target | None:
        """The state of the worst breaker around *handlers*; None: not known."""
        if self.look is None:
            return None
        seen = {one.name: one for handler in handlers for one in self.look.of(handler)[0] or ()}
        worst = min(map(target_of, seen.values()), key=_ORDER.index, default=None)
        barring = [one for one in seen.values() if target_of(one).phase in BARRED]
        return worst and worst._replace(barring=tuple(barring))


def target_of(seen: BreakerSeen) -> Target:
    """The target for a caller: an open breaker that may be tried is half-open.

    Without other callers, only the replay itself can find out that the wait is over.
    """
    phase = Phase.HALF_OPEN if seen.to_be_tried else seen.phase
    return Target(phase, ramping=phase is Phase.CLOSED and seen.ramping)


def asker(job: ReplayJob) -> str:
    """Who asks for the replays that *job* begins now: the job, its people, whether for a canary."""
    people = ", approved by ".join(filter(None, (job.created_by, job.approved_by)))
    stages = job.plan.stages
    is_canary = job.stage == 0 and bool(stages) and job.total > stages[0]
    return f"job {job.id} ({people}){', canary' if is_canary else ''}"
