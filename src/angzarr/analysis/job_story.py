"""The story of a replay job: what its history says of a change. Pure."""

from __future__ import annotations

from datetime import datetime

from angzarr.analysis.entry import HistoryLine
from angzarr.analysis.job import JobStatus, ReplayJob


def first_line(job: ReplayJob) -> HistoryLine:
    """Return the line of a job that was just stored."""
    said = "; ".join(part for part in (f"{job.total} entries", job.note, job.said) if part)
    return HistoryLine(at=job.created_at, who=job.created_by, what=job.status.value, detail=said)


def lines(before: ReplayJob, after: ReplayJob, now: datetime, by: str) -> list[HistoryLine]:
    """Return what a change from *before* to *after* adds to the history."""
    told: list[tuple[str, str]] = []
    if after.status is not before.status:
        told.append((_word(before, after), after.said or _counts(after)))
    elif after.stage > before.stage:
        told.append((f"stage {after.stage + 1}", _counts(after)))
    if after.status is before.status is JobStatus.RUNNING and after.said != before.said:
        told.append(("waits" if after.said else "goes on", after.said))
    return [HistoryLine(at=now, who=by, what=what, detail=detail) for what, detail in told]


def _word(before: ReplayJob, after: ReplayJob) -> str:
    if before.status is JobStatus.PROPOSED and after.status is not JobStatus.CANCELLED:
        return "approved"
    return "resumed" if after.round > before.round else after.status.value


def _counts(job: ReplayJob) -> str:
    bad = job.failed + job.unanswered
    return f"{job.sent} sent, {job.handled} handled, {bad} failed, {job.refused} refused"
