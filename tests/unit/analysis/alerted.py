"""Groups, entries and jobs that alerts are about, and what stands in for their stores."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from tests.hand_clock import START

from angzarr.analysis.alerts.alert import GROUP, Watch
from angzarr.analysis.ledger.group import Group, GroupFilter, GroupPage
from angzarr.analysis.replay.job import JobPage, JobPlan, JobStatus, ReplayJob, Selection

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
OPEN_ONLY = GroupFilter()


def group_of(fingerprint: str = "d2dfb1c0ffee0001", **fields: object) -> Group:
    entries = fields.get("entries", 3)
    known: dict[str, object] = {
        "fingerprint": fingerprint,
        "handler_name": "orders.sync",
        "domain": "order",
        "event_type": "OrderPlaced",
        "reason": "exhausted",
        "error_type": "TimeoutError",
        "error_message": "timed out after 3 s",
        "first_failed_at": START - timedelta(minutes=5),
        "last_failed_at": START - timedelta(seconds=30),
        "entries": entries,
        "open_entries": entries,
        "occurrences": entries,
    }
    return Group(**{**known, **fields})  # type: ignore[arg-type]


def grown(group: Group, more: int, **fields: object) -> Group:
    return replace(
        group,
        entries=group.entries + more,
        open_entries=group.open_entries + more,
        occurrences=group.occurrences + more,
        **fields,  # type: ignore[arg-type]
    )


def new_watch(fingerprint: str = "d2dfb1c0ffee0001") -> Watch:
    return Watch(subject=GROUP + fingerprint)


def job_of(job_id: str = "job-1", **fields: object) -> ReplayJob:
    known: dict[str, object] = {
        "id": job_id,
        "selection": Selection(),
        "plan": JobPlan(),
        "status": JobStatus.HALTED,
        "said": "5 of the last 5 failed again",
        "created_by": "ada@host",
        "created_at": START - HOUR,
        "total": 100,
        "sent": 6,
        "handled": 1,
        "failed": 5,
    }
    return ReplayJob(**{**known, **fields})  # type: ignore[arg-type]


class FakeGroups:
    """Open groups, the one that failed last first; counts how many were read."""

    def __init__(self) -> None:
        self.known: dict[str, Group] = {}
        self.read = 0
        self.pages = 0

    def put(self, *groups: Group) -> None:
        self.known.update((group.fingerprint, group) for group in groups)

    def get_groups(
        self, wanted: GroupFilter = OPEN_ONLY, /, *, limit: int = 100, after: str = ""
    ) -> GroupPage:
        open_ones = [one for one in self.known.values() if one.open_entries or not wanted.open_only]
        open_ones.sort(key=lambda one: (one.last_failed_at, one.fingerprint), reverse=True)
        start = next((n + 1 for n, one in enumerate(open_ones) if one.fingerprint == after), 0)
        page = open_ones[start : start + limit]
        self.read += len(page)
        self.pages += 1
        more = len(open_ones) > start + limit
        return GroupPage(groups=tuple(page), next=page[-1].fingerprint if more else "")

    def open_group(self, fingerprint: str, /) -> Group | None:
        return self.known.get(fingerprint)


class FakeJobs:
    """Replay jobs by id."""

    def __init__(self) -> None:
        self.known: dict[str, ReplayJob] = {}

    def put(self, job: ReplayJob) -> None:
        self.known[job.id] = job

    def open_job(self, job_id: str, /) -> ReplayJob | None:
        return self.known.get(job_id)

    def get_jobs(
        self, statuses=(), /, *, group=None, prefix="", limit: int = 50, after: str = ""
    ) -> JobPage:
        found = [one for one in self.known.values() if one.status in statuses]
        start = int(after or 0)
        page = tuple(found[start : start + limit])
        return JobPage(jobs=page, next=str(start + limit) if found[start + limit :] else "")
