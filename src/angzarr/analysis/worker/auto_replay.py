"""Recovering: the analysis worker's duty that replays held groups whose cause is gone (A3, A4).

It looks at some held entries of each group as if they had just failed. Where the rules would now
replay one, a replay job is begun for all like it in its group: canary first, and it halts itself.
People stand above it: only what a rule held is replayed, what is acknowledged is left alone, and
so is everything while the brake is pulled or it is quiet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from angzarr.analysis.classification.evidence import Evidence
from angzarr.analysis.ledger.duty import report
from angzarr.analysis.ledger.entry import Entry, EntryDetail, Hold, Status
from angzarr.analysis.ledger.group import OPEN_GROUPS, Groups
from angzarr.analysis.ledger.ledger import EntryFilter, Ledger
from angzarr.analysis.ledger.plan_filing import as_stored
from angzarr.analysis.ledger.transition import Action, Decision
from angzarr.analysis.replay.auto_replay_rules import (
    AUTOMATIC,
    considered,
    is_automatic,
    job_id_for,
    left_to_people,
    may_begin,
    of_group,
    samples,
)
from angzarr.analysis.replay.job import JobPlan, JobStatus, ReplayJob, ReplayJobs, Selection
from angzarr.analysis.worker.decisions import Deciding
from angzarr.clock import Clock
from angzarr.errors import Unavailable
from angzarr.runtime.log_throttle import Seldom

#: From one look to the next.
LOOK_EVERY: Final = timedelta(seconds=30)
#: Groups looked at in one turn; the next turn goes on behind them.
GROUPS: Final = 50
#: Held entries of a group among which samples are chosen.
HELD: Final = 50
#: Jobs looked at: the last ones of the group, and the last ones over no one group.
JOBS: Final = 1000


@dataclass(slots=True, kw_only=True)
class Recovering:
    """Begins replay jobs by itself."""

    ledger: Ledger
    groups: Groups
    jobs: ReplayJobs
    deciding: Deciding
    clock: Clock
    #: Says why nothing may begin by itself now, or nothing.
    barred: Callable[[], str]
    #: Names the releases that run a handler; empty: unknown.
    running: Callable[[str], str]
    #: Replays after which an entry is left to people.
    most_replays: int
    plan: JobPlan = field(default_factory=JobPlan)
    #: Jobs of more entries wait for a person; None: none does.
    approval_over: int | None = None
    every: timedelta = LOOK_EVERY
    seldom: Seldom = field(default_factory=Seldom)
    name: str = field(default="recovery", init=False)
    _look_at: datetime | None = field(default=None, init=False)
    _after: str = field(default="", init=False)

    def turn(self, wait: timedelta) -> int:  # noqa: ARG002 - letters are what it waits for
        """Look at some groups, now and then; return how many jobs were begun."""
        now = self.clock.now()
        if self._look_at is not None and now < self._look_at:
            return 0
        self._look_at = now + self.every
        if self.barred():
            return 0
        found = self._samples()
        if not found:
            return 0
        evidence = self.deciding.gathering.gather(
            [as_stored(one.entry, one.failure) for one in found]
        )
        gone = [pair for pair in zip(found, evidence, strict=True) if self._is_gone(pair[1])]
        of_none = self.jobs.get_jobs(group="", limit=JOBS).jobs if gone else ()
        return sum(self._recover(one.entry, known, of_none, now) for one, known in gone)

    def _samples(self) -> list[EntryDetail]:
        page = self.groups.get_groups(OPEN_GROUPS, limit=GROUPS, after=self._after)
        self._after = page.next
        found = [
            entry
            for group in page.groups
            if considered(group)
            for entry in samples(self._held(group.fingerprint), self.most_replays)
        ]
        owners = self.deciding.owners(found)
        free = [entry for entry in found if self._is_free(owners.get(entry.id, ""))]
        opened = (self.ledger.open(entry.id) for entry in free)
        return [detail for detail in opened if detail is not None]

    def _held(self, fingerprint: str) -> Sequence[Entry]:
        wanted = EntryFilter(fingerprint=fingerprint, hold=Hold.RULE)
        return self.ledger.get_failed_events(wanted, status=Status.HELD, limit=HELD).entries

    def _is_free(self, owner: str) -> bool:
        """Tell whether no job has it, but for one of ours that halted."""
        if not owner or not is_automatic(owner):
            return not owner
        job = self.jobs.open_job(owner)
        return job is not None and job.status is JobStatus.HALTED

    def _is_gone(self, evidence: Evidence) -> bool:
        return self.deciding.classify(evidence).action is Action.REPLAY

    def _recover(
        self, entry: Entry, evidence: Evidence, of_none: Sequence[ReplayJob], now: datetime
    ) -> bool:
        """Begin a job for what is like *entry*, if one may begin; one group stops no other."""
        try:
            of_its_own = self.jobs.get_jobs(group=entry.fingerprint, limit=JOBS).jobs
            return self._begin_next(entry, evidence, [*of_none, *of_its_own], now)
        except Unavailable:
            raise
        except Exception as error:  # noqa: BLE001 - the other groups are to be looked at
            report(self.name, error, self.seldom)
            return False

    def _begin_next(
        self, entry: Entry, evidence: Evidence, jobs: Sequence[ReplayJob], now: datetime
    ) -> bool:
        known = of_group(jobs, entry)
        if left_to_people(known, now):
            return False
        before = [job for job in known if job.created_by == AUTOMATIC]
        newer = self.running(entry.handler_name) if evidence.newer_release else ""
        job_id = job_id_for(entry, before, newer)
        if not may_begin(before, now, newer) or self.jobs.open_job(job_id):
            return False
        for job in before:
            if job.status is JobStatus.HALTED:
                self.jobs.cancel(job.id, by=AUTOMATIC)
        self._begin(job_id, entry, self.deciding.classify(evidence))
        return True

    def _begin(self, job_id: str, entry: Entry, decision: Decision) -> None:
        wanted = EntryFilter(
            fingerprint=entry.fingerprint, failure_class=entry.failure_class, hold=Hold.RULE
        )
        self.jobs.begin(
            Selection(wanted=wanted, status=Status.HELD),
            self.plan,
            by=AUTOMATIC,
            note=f"{decision.failure_class}: {decision.evidence}",
            job_id=job_id,
            approval_over=self.approval_over,
        )
