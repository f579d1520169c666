"""Recovering: the analysis worker's duty that replays held groups whose cause is gone (A3, A4).

It looks at one held entry of each group as if that had just failed. Where the rules would now
replay it, a replay job is begun for all that are held in its group: canary first, and it halts
itself. A person's word stands above: what is acknowledged is left alone, and so is everything
while the brake is pulled or it is quiet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from angzarr.analysis.deciding import Deciding
from angzarr.analysis.entry import Entry, Failure, Status
from angzarr.analysis.evidence import Evidence
from angzarr.analysis.group import OPEN_GROUPS, Groups
from angzarr.analysis.job import JobPlan, JobStatus, ReplayJobs, Selection
from angzarr.analysis.ledger import EntryFilter, Ledger
from angzarr.analysis.recovery import AUTOMATIC, considered, may_begin, trial
from angzarr.analysis.transition import Action, Decision
from angzarr.clock import Clock

#: From one look to the next.
LOOK_EVERY: Final = timedelta(seconds=30)
#: Groups looked at in one turn; the next turn goes on behind them.
GROUPS: Final = 50
#: Halted jobs looked through for those that another takes over from.
HALTED: Final = 1000


class _Sample(NamedTuple):
    """The entry of a group that failed last of those that are held, and its letter."""

    entry: Entry
    failure: Failure


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
    plan: JobPlan = field(default_factory=JobPlan)
    #: Jobs of more entries wait for a person; None: none does.
    approval_over: int | None = None
    every: timedelta = LOOK_EVERY
    name: str = field(default="recovery", init=False)
    _look_at: datetime | None = field(default=None, init=False)
    _after: str = field(default="", init=False)
    #: The number of the next job of a group, as far as this worker knows.
    _numbers: dict[str, int] = field(default_factory=dict, init=False)

    def turn(self, wait: timedelta) -> int:  # noqa: ARG002 - letters are what it waits for
        """Look at some groups, now and then; return how many jobs were begun."""
        now = self.clock.now()
        if self._look_at is not None and now < self._look_at:
            return 0
        self._look_at = now + self.every
        if self.barred():
            return 0
        samples = self._samples()
        if not samples:
            return 0
        evidence = self.deciding.gathering.gather(samples)
        judged = zip(samples, evidence, strict=True)
        return sum(self._recover(one.entry, known, now) for one, known in judged)

    def _samples(self) -> list[_Sample]:
        page = self.groups.get_groups(OPEN_GROUPS, limit=GROUPS, after=self._after)
        self._after = page.next
        found = (self._sample(group.fingerprint) for group in page.groups if considered(group))
        samples = [one for one in found if one is not None]
        owned = self.deciding.owners([one.entry for one in samples])
        return [one for one in samples if one.entry.id not in owned]

    def _sample(self, fingerprint: str) -> _Sample | None:
        wanted = EntryFilter(fingerprint=fingerprint)
        held = self.ledger.get_failed_events(wanted, status=Status.HELD, limit=1).entries
        detail = self.ledger.open(held[0].id) if held else None
        return _Sample(detail.entry, detail.failure) if detail else None

    def _recover(self, entry: Entry, evidence: Evidence, now: datetime) -> bool:
        decision = self.deciding.classify(evidence)
        if decision.action is not Action.REPLAY:
            return False
        job_id = self._next_job(entry, evidence, now)
        if not job_id:
            return False
        self._begin(job_id, entry, decision)
        return True

    def _next_job(self, entry: Entry, evidence: Evidence, now: datetime) -> str:
        """Return the id of the job that may begin now, or an empty string."""
        number = self._numbers.get(entry.fingerprint, 1)
        one = trial(entry, evidence, number)
        while self.jobs.open_job(one.job_id) is not None:
            if not one.before and evidence.newer_release:
                return ""
            number += 1
            self._numbers[entry.fingerprint] = number
            one = trial(entry, evidence, number)
        before = [job for known in one.before if (job := self.jobs.open_job(known)) is not None]
        return one.job_id if may_begin(before, now) else ""

    def _begin(self, job_id: str, entry: Entry, decision: Decision) -> None:
        """Begin the job; what a halted one before it has not replayed is its own."""
        for halted in self.jobs.get_jobs((JobStatus.HALTED,), limit=HALTED).jobs:
            of_group = halted.selection.wanted.fingerprint == entry.fingerprint
            if of_group and halted.created_by == AUTOMATIC:
                self.jobs.cancel(halted.id, by=AUTOMATIC)
        wanted = EntryFilter(fingerprint=entry.fingerprint, failure_class=entry.failure_class)
        self.jobs.begin(
            Selection(wanted=wanted, status=Status.HELD),
            self.plan,
            by=AUTOMATIC,
            note=f"{decision.failure_class}: {decision.evidence}",
            job_id=job_id,
            approval_over=self.approval_over,
        )
