"""Adding up: the entries of a person's other replay jobs, summed by the database.

`job_approval.besides` says which count; only names and sums leave the database.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import ColumnElement, Connection, and_, case, func, or_, select

from angzarr.adapters.sql.job_tables import replay_jobs
from angzarr.analysis.job import ENDED, JobStatus, ReplayJob
from angzarr.analysis.job_approval import ADDED_UP, others_matter, same_person
from angzarr.analysis.recovery import AUTOMATIC

_jobs = replay_jobs.c
_UNDER_WAY: Final = _jobs.status.not_in(sorted(ENDED | {JobStatus.PROPOSED}))


def besides(connection: Connection, job: ReplayJob, total: int, approval_over: int | None) -> int:
    """Return what counts beside *job* of *total* entries; nothing is read where it is all one."""
    if not others_matter(total, approval_over):
        return 0
    entries = case((_jobs.ended_at.is_(None), _jobs.total - _jobs.refused), else_=_jobs.sent)
    others = (_jobs.approved_by == "", _jobs.status != JobStatus.PROPOSED, _jobs.id != job.id)
    sums = select(_jobs.created_by, func.sum(entries)).where(*others, _counts(job))
    found = connection.execute(sums.group_by(_jobs.created_by))
    return sum(int(count) for name, count in found if same_person(name, job.created_by))


def _counts(job: ReplayJob) -> ColumnElement[bool]:
    automatic = _jobs.created_by == AUTOMATIC
    if job.created_by == AUTOMATIC:
        return and_(automatic, _UNDER_WAY, _jobs.fingerprint == job.group)
    return and_(~automatic, or_(_UNDER_WAY, _jobs.ended_at > job.created_at - ADDED_UP))
