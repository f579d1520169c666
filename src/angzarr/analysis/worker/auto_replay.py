"""AutoReplay: replays held groups whose cause is gone, by a job with a canary (A3, A4).

It judges some held entries of each group as if they had just failed. Where the rules would now
replay one, it begins a job for all like it: at most one for each newer release, else further and
further apart while they go wrong. It replays only what a rule held, leaves acknowledged groups
alone, and begins nothing while the brake is pulled or it is quiet.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from angzarr.analysis.classification.evidence import Evidence
from angzarr.analysis.ledger.entry import Entry, EntryDetail, Hold, Status
from angzarr.analysis.ledger.filing_plan import as_stored
from angzarr.analysis.ledger.group import OPEN_GROUPS, Group, Groups, GroupStatus
from angzarr.analysis.ledger.ledger import EntryFilter, Ledger
from angzarr.analysis.ledger.transition import Action, EntryDecision, is_judged_here
from angzarr.analysis.replay.job import (
    AUTOMATIC,
    AUTOMATIC_PREFIX,
    ENDED,
    JobPlan,
    JobStatus,
    ReplayJob,
    Selection,
    is_automatic,
)
from angzarr.analysis.replay.job_store import ReplayJobs
from angzarr.analysis.worker.decisions import DecisionMaker
from angzarr.analysis.worker.worker import report
from angzarr.clock import Clock
from angzarr.errors import Unavailable
from angzarr.runtime.failures import LogThrottle

#: From one job of a group to the next, at first; doubled for each that went wrong in a row.
FIRST_PAUSE: Final = timedelta(minutes=10)
LONGEST_PAUSE: Final = timedelta(days=1)
#: How long a group is left to a person after that person's job.
LEFT_TO_PEOPLE: Final = timedelta(days=1)
#: Entries of a group that are judged, each of another class or release.
SAMPLES: Final = 3

_NAMES: Final = uuid.UUID("2d5f6a0e-7d2f-5b8e-9c55-3b0c41a9f1d7")


def considered(group: Group) -> bool:
    """True if *group* has entries that are held, and no person said that he looks after it."""
    held = group.by_status.get(Status.HELD.value, 0)
    return held > 0 and group.status is not GroupStatus.ACKNOWLEDGED


def samples(held: Iterable[Entry], most_replays: int) -> list[Entry]:
    """The entries to judge a group by: of each class and release the one that failed last.

    One that was replayed as often as it may be says nothing of the others, and one of a class that
    only newer workers know is theirs to judge.
    """
    found: dict[tuple[object, str], Entry] = {}
    for entry in held:
        if entry.replays < most_replays and is_judged_here(entry):
            found.setdefault((entry.failure_class, entry.version), entry)
    return list(found.values())[:SAMPLES]


def of_group(jobs: Iterable[ReplayJob], entry: Entry) -> list[ReplayJob]:
    """Those of *jobs* that may be about *entry*'s group, the last one last."""
    found = [
        job
        for job in jobs
        if job.selection.wanted.fingerprint in {None, entry.fingerprint}
        and entry.handler_name in job.handlers
    ]
    return sorted(found, key=lambda job: (job.created_at, job.id))


def left_to_people(jobs: Iterable[ReplayJob], now: datetime) -> bool:
    """True if a person replays the group, or did so a short while ago."""
    return any(
        job.created_by != AUTOMATIC
        and (job.ended_at is None or now < job.ended_at + LEFT_TO_PEOPLE)
        for job in jobs
    )


def job_id_for(entry: Entry, before: Sequence[ReplayJob], newer_release: str = "") -> str:
    """The id of the job for entries like *entry*, which all analysis workers agree on.

    One for each *newer_release*, where that is the cause; else one behind the job *before*.
    """
    last = before[-1].id if before else ""
    cause = ("under", newer_release) if newer_release else ("behind", last)
    parts = (entry.fingerprint, entry.failure_class or "", *cause)
    return f"{AUTOMATIC_PREFIX}{uuid.uuid5(_NAMES, chr(0).join(parts))}"


def may_begin(before: Sequence[ReplayJob], now: datetime, newer_release: str = "") -> bool:
    """True if another job may follow those *before* it; it takes over from one that halted.

    A *newer_release* need not wait for the pause: nothing was tried with it.
    """
    if not before:
        return True
    last = before[-1]
    if last.status not in ENDED | {JobStatus.HALTED}:
        return False
    return bool(newer_release) or now >= (last.ended_at or last.created_at) + pause_after(before)


def pause_after(before: Sequence[ReplayJob]) -> timedelta:
    """The wait after these jobs of a group: longer for each that went wrong."""
    wrong = 0
    for job in reversed(before):
        if went_well(job):
            break
        wrong += 1
    longer: timedelta = FIRST_PAUSE * 2 ** min(wrong, 30)
    return min(longer, LONGEST_PAUSE)


def went_well(job: ReplayJob) -> bool:
    """True if *job* came to its end, handled something and nothing failed again."""
    ended = job.status is JobStatus.DONE and job.handled > 0
    return ended and not job.failed and not job.unanswered


#: From one look to the next.
LOOK_EVERY: Final = timedelta(seconds=30)
#: Groups looked at in one turn; the next turn goes on behind them.
GROUPS: Final = 50
#: Held entries of a group among which samples are chosen.
HELD: Final = 50
#: Jobs looked at: the last ones of the group, and the last ones over no one group.
JOBS: Final = 1000


@dataclass(slots=True, kw_only=True)
class AutoReplay:
    """Begins replay jobs by itself."""

    ledger: Ledger
    groups: Groups
    jobs: ReplayJobs
    deciding: DecisionMaker
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
    seldom: LogThrottle = field(default_factory=LogThrottle)
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
        """True if no job has it, but for one of ours that halted."""
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

    def _begin(self, job_id: str, entry: Entry, decision: EntryDecision) -> None:
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
