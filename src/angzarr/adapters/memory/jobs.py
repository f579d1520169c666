"""Replay jobs in this process, beside a ledger in memory: for tests."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from angzarr.adapters.memory.ledger import MemoryLedger
from angzarr.analysis.ledger.entry import Entry, HistoryLine, Status
from angzarr.analysis.ledger.ledger import LONGEST_PAGE, Cursor, read_cursor
from angzarr.analysis.ledger.operator_actions import is_parked
from angzarr.analysis.ledger.transition import REPLAYABLE
from angzarr.analysis.replay import job_limits as job_approval
from angzarr.analysis.replay import job_rules
from angzarr.analysis.replay import job_rules as job_story
from angzarr.analysis.replay.job import (
    ENDED,
    ENDED_STATES,
    Candidate,
    ItemState,
    JobEdit,
    JobItem,
    JobPage,
    JobStatus,
    ReplayJob,
    Selection,
    digest_of,
)
from angzarr.analysis.replay.job_rules import EntrySnapshot, ItemAnswer
from angzarr.analysis.replay.job_store import (
    Begun,
    JobCommands,
    JobRule,
    JobWork,
    Noted,
    ReplayJobs,
)
from angzarr.clock import Clock, SystemClock


@dataclass(slots=True)
class _Kept:
    """A job with its entries and its history."""

    job: ReplayJob
    items: dict[int, JobItem] = field(default_factory=dict)
    chosen_as: dict[int, Status] = field(default_factory=dict)
    lines: list[HistoryLine] = field(default_factory=list)
    edit: JobEdit | None = None
    engine: str = ""
    leased_until: datetime | None = None

    def in_state(self, state: ItemState) -> list[JobItem]:
        return [item for item in self.items.values() if item.state is state]

    def put(self, items: Sequence[JobItem]) -> None:
        self.items.update((item.position, item) for item in items)


class MemoryReplayJobs(JobCommands, ReplayJobs, JobWork):
    """Jobs in a dictionary; safe to use from many threads."""

    def __init__(self, ledger: MemoryLedger, clock: Clock | None = None) -> None:
        self._ledger = ledger
        self._clock = clock or SystemClock()
        self._lock = threading.RLock()
        self._jobs: dict[str, _Kept] = {}

    # -- people --------------------------------------------------------------------------

    def would_choose(self, selection: Selection, *, limit: int) -> list[Candidate]:
        """Return what a job would look at."""
        with self._lock:
            fits = self._fitting(selection)[:limit]
            return [Candidate(entry, self._owner(entry.id)) for entry in fits]

    def open_job(self, job_id: str) -> ReplayJob | None:
        """Return a job."""
        with self._lock:
            kept = self._jobs.get(job_id)
            return kept.job if kept else None

    def job_edit(self, job_id: str) -> JobEdit | None:
        """Return the edit of a job."""
        with self._lock:
            kept = self._jobs.get(job_id)
            return kept.edit if kept else None

    def get_jobs(
        self,
        statuses: Sequence[JobStatus] = (),
        *,
        group: str | None = None,
        prefix: str = "",
        limit: int = 50,
        after: str = "",
    ) -> JobPage:
        """Return a page of jobs."""
        behind = read_cursor(after) if after else None
        with self._lock:
            jobs = [kept.job for kept in self._jobs.values()]
        jobs = [job for job in jobs if not statuses or job.status in statuses]
        jobs = [job for job in jobs if group is None or job.group == group]
        jobs = [job for job in jobs if job.id.startswith(prefix)]
        jobs.sort(key=lambda job: (job.created_at, job.id), reverse=True)
        if behind is not None:
            jobs = [job for job in jobs if (job.created_at, job.id) < behind]
        more = str(Cursor(jobs[limit - 1].created_at, jobs[limit - 1].id)) if jobs[limit:] else ""
        return JobPage(jobs=tuple(jobs[:limit]), next=more)

    def items(
        self, job_id: str, states: Sequence[ItemState] = (), *, limit: int = 100, after: int = 0
    ) -> list[JobItem]:
        """Return entries of a job."""
        with self._lock:
            kept = self._jobs.get(job_id)
            found = list(kept.items.values()) if kept else []
        wanted = [item for item in found if not states or item.state in states]
        return [item for item in wanted if item.position > after][:limit]

    def job_history(self, job_id: str) -> tuple[HistoryLine, ...]:
        """Return what happened to a job."""
        with self._lock:
            return tuple(self._jobs[job_id].lines) if job_id in self._jobs else ()

    def close(self) -> None:
        """Keep everything: there is nothing to let go."""

    # -- engines -------------------------------------------------------------------------

    def take(self, engine: str, *, lease: timedelta, limit: int) -> list[ReplayJob]:
        """Take jobs that need work."""
        with self._lock:
            now = self._clock.now()
            free = [one for one in self._jobs.values() if self._is_free(one, engine, now)]
            free.sort(key=lambda one: (one.leased_until or one.job.created_at, one.job.id))
            for one in free[:limit]:
                one.engine, one.leased_until = engine, now + lease
            return [one.job for one in free[:limit]]

    def reconcile(self, job_id: str, engine: str, *, by: str = "") -> ReplayJob | None:
        """Count what the entries say."""
        with self._lock:
            if (kept := self._held(job_id, engine)) is None:
                return None
            now = self._clock.now()
            back = [self._back(kept.job, item) for item in kept.in_state(ItemState.BEGUN)]
            kept.put(back)
            fresh = job_rules.noted(kept.job, back, kept.job.said, now)
            ended = [
                item._replace(state=state)
                for item in kept.in_state(ItemState.SENT)
                if (state := job_rules.ending(self._seen(item.entry_id), item.replay))
            ]
            kept.put(ended)
            answers = [ItemAnswer(item.state, item.round) for item in ended]
            return self._save(kept, job_rules.answered(fresh, answers, now), now, by or engine)

    def begin_next(
        self, job_id: str, engine: str, *, limit: int, most_replays: int, by: str = ""
    ) -> list[Begun]:
        """Begin the next replays of a job."""
        with self._lock:
            if (kept := self._held(job_id, engine)) is None:
                return []
            began = kept.in_state(ItemState.BEGUN)
            if not began and limit > 0 and kept.job.status is JobStatus.RUNNING:
                began = self._begin_more(kept, by or engine, limit, most_replays)
            return [Begun(item.position, item.entry_id, item.replay) for item in began]

    def note(
        self,
        job_id: str,
        engine: str,
        noted: Sequence[Noted],
        *,
        said: str = "",
        by: str = "",
    ) -> ReplayJob | None:
        """Note what was sent and refused."""
        with self._lock:
            if (kept := self._held(job_id, engine)) is None:
                return None
            found = [
                self._back(kept.job, kept.items[one.position])
                if one.state is ItemState.CHOSEN
                else kept.items[one.position]._replace(state=one.state, reason=one.reason)
                for one in noted
                if kept.items[one.position].state is ItemState.BEGUN
            ]
            kept.put(found)
            now = self._clock.now()
            after = job_rules.noted(kept.job, found, said, now)
            return self._save(kept, after, now, by or engine)

    def prune(self, before: datetime, *, limit: int) -> int:
        """Remove jobs that ended long ago."""
        with self._lock:
            removed = 0
            gone = [kept for kept in self._jobs.values() if self._may_go(kept.job, before)]
            for kept in sorted(gone, key=_ended):
                some = list(kept.items)[: limit - removed]
                for position in some:
                    del kept.items[position], kept.chosen_as[position]
                removed += len(some)
                if removed == limit:
                    break
                del self._jobs[kept.job.id]
                removed += 1
            return removed

    def owners(self, entries: Sequence[Entry]) -> Mapping[str, str]:
        """Return which job has which entry."""
        with self._lock:
            by_id = {entry.id: entry for entry in entries}
            return {
                item.entry_id: kept.job.id
                for kept, item in self._all_items()
                if item.entry_id in by_id
                and job_rules.owns(kept.job.status, item, by_id[item.entry_id])
            }

    # ------------------------------------------------------------------------------------

    def _fill(
        self,
        fresh: ReplayJob,
        approval_over: int | None,
        edit: JobEdit | None,
        *,
        redirects_wait: bool,
    ) -> ReplayJob:
        with self._lock:
            if fresh.id in self._jobs:
                return self._jobs[fresh.id].job
            fits = self._fitting(fresh.selection)
            free = [entry for entry in fits if not self._owner(entry.id)]
            others = [owner for entry in fits if (owner := self._owner(entry.id))]
            job = job_rules.filled(
                fresh,
                total=len(free),
                handlers={entry.handler_name for entry in free},
                elsewhere=(len(others), next(iter(others), "")),
                behind=self._ahead(fresh),
                approval_over=approval_over,
                besides=self._besides(fresh, len(free), approval_over),
                edit=edit,
                redirects_wait=redirects_wait,
            )
            if not job.total:
                return job
            kept = _Kept(job=job, lines=[job_story.first_line(job, edit)], edit=edit)
            for position, entry in enumerate(free, 1):
                numbered = JobItem(position, entry.id, ItemState.CHOSEN, entry.replays + 1)
                kept.items[position] = numbered
                kept.chosen_as[position] = entry.status
            self._jobs[job.id] = kept
            return job

    def _besides(self, fresh: ReplayJob, total: int, approval_over: int | None) -> int:
        if not job_approval.others_matter(total, approval_over):
            return 0
        return job_approval.besides((kept.job for kept in self._jobs.values()), fresh)

    def _may_go(self, job: ReplayJob, before: datetime) -> bool:
        if job.ended_at is None or job.ended_at >= before or job.out > 0:
            return False
        group = self._ledger.open_group(job.group)
        return group is None or not group.open_entries

    def _back(self, job: ReplayJob, item: JobItem) -> JobItem:
        sent = digest_of(self._ledger.order_of(item.entry_id, item.replay)) if job.edit else ""
        return job_rules.put_back(item, self._seen(item.entry_id), edit=job.edit, sent=sent)

    def _begin_more(self, kept: _Kept, by: str, limit: int, most_replays: int) -> list[JobItem]:
        began: list[JobItem] = []
        refused = 0
        for item in kept.in_state(ItemState.CHOSEN):
            if len(began) == limit:
                break
            seen = self._seen(item.entry_id)
            chosen_as = kept.chosen_as[item.position]
            reason = job_rules.refusal(item, seen, chosen_as, most_replays, kept.job.edit)
            if seen is None or reason:
                kept.put([item._replace(state=ItemState.REFUSED, reason=reason)])
                refused += 1
                continue
            began.append(job_rules.numbered(item, seen, kept.job))
        kept.put(began)
        now = self._clock.now()
        job = job_rules.passed_over(job_rules.begun(kept.job, len(began), now), refused, now)
        self._save(kept, job, now, by)
        return began

    def _mark(self, job_id: str, rule: JobRule, by: str) -> ReplayJob | None:
        with self._lock:
            now, kept = self._clock.now(), self._jobs.get(job_id)
            after = rule(kept.job, now, by) if kept else None
            if kept is None or after is None:
                return None
            return self._save(kept, after, now, by)

    def _save(self, kept: _Kept, after: ReplayJob, now: datetime, by: str) -> ReplayJob:
        if after != kept.job:
            kept.lines += job_story.lines(kept.job, after, now, by)
            kept.job = replace(after, revision=kept.job.revision + 1)
        return kept.job

    def _fitting(self, selection: Selection) -> list[Entry]:
        found = list(self._found(selection))
        if selection.status is None and not selection.entry_ids:
            found = [entry for entry in found if entry.status in job_rules.CHOSEN_BY_DEFAULT]
        found = [entry for entry in found if entry.status in REPLAYABLE]
        found.sort(key=lambda entry: (entry.last_failed_at, entry.id))
        return found[: selection.limit]

    def _found(self, selection: Selection) -> Iterator[Entry]:
        if selection.entry_ids:
            for entry_id in dict.fromkeys(selection.entry_ids):
                if detail := self._ledger.open(entry_id):
                    yield detail.entry
            return
        after = ""
        while True:
            page = self._ledger.get_failed_events(
                selection.wanted, status=selection.status, limit=LONGEST_PAGE, after=after
            )
            yield from page.entries
            if not (after := page.next):
                return

    def _seen(self, entry_id: str) -> EntrySnapshot | None:
        detail = self._ledger.open(entry_id)
        if detail is None:
            return None
        entry = detail.entry
        return EntrySnapshot(entry.status, entry.replays, entry.letter_replay, is_parked(entry))

    def _all_items(self) -> Iterator[tuple[_Kept, JobItem]]:
        return ((kept, item) for kept in self._jobs.values() for item in kept.items.values())

    def _owner(self, entry_id: str) -> str:
        """Return the unfinished job that has an entry, or an empty string."""
        for kept, item in self._all_items():
            open_ = item.state not in ENDED_STATES and kept.job.status not in ENDED
            if open_ and item.entry_id == entry_id:
                return kept.job.id
        return ""

    def _ahead(self, job: ReplayJob) -> str:
        """Return the oldest running job over the same group but for *job*, or nothing."""
        same = [
            one.job
            for one in self._jobs.values()
            if one.job.group == job.group and one.job.status is JobStatus.RUNNING
        ]
        same = [one for one in same if job.group and one.id != job.id]
        return min(same, key=lambda one: (one.created_at, one.id)).id if same else ""

    def _is_free(self, kept: _Kept, engine: str, now: datetime) -> bool:
        if kept.engine != engine and kept.leased_until and kept.leased_until > now:
            return False
        ahead = self._jobs.get(self._ahead(kept.job))
        first = ahead is None or _age(kept) < _age(ahead)
        return kept.job.out > 0 or (kept.job.status is JobStatus.RUNNING and first)

    def _held(self, job_id: str, engine: str) -> _Kept | None:
        kept = self._jobs.get(job_id)
        return kept if kept and kept.engine == engine else None


def _age(kept: _Kept) -> tuple[datetime, str]:
    return kept.job.created_at, kept.job.id


def _ended(kept: _Kept) -> tuple[datetime, str]:
    return kept.job.ended_at or kept.job.created_at, kept.job.id
