"""The story of a replay job: what its history says of a change. Pure."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

from angzarr.analysis.ledger.entry import HistoryLine, counted
from angzarr.analysis.replay.job import JobStatus, ReplayJob
from angzarr.analysis.replay.job_capacity import NEXT_PROBE
from angzarr.analysis.replay.job_edit import JobEdit

_PROBE: Final = re.compile(re.escape(NEXT_PROBE) + r"[^)]*\)")


def first_line(job: ReplayJob, edit: JobEdit | None = None) -> HistoryLine:
    """Return the line of a job that was just stored, with the *edit* that it carries."""
    edited = f"edited: {edit.order.said} (SHA-256 {edit.sha256})" if edit else ""
    said = "; ".join(filter(None, (counted(job.total), job.note, job.said, edited)))
    return HistoryLine(at=job.created_at, who=job.created_by, what=job.status.value, detail=said)


def lines(before: ReplayJob, after: ReplayJob, now: datetime, by: str) -> list[HistoryLine]:
    """Return what a change from *before* to *after* adds to the history."""
    told: list[tuple[str, str]] = []
    if after.status is not before.status:
        told.append((_word(before, after), after.said or _counts(after)))
    elif after.stage > before.stage:
        told.append((f"stage {after.stage + 1}", _counts(after)))
    if after.status is before.status is JobStatus.RUNNING and _cause(after) != _cause(before):
        told.append(("waits" if after.said else "goes on", after.said))
    return [HistoryLine(at=now, who=by, what=what, detail=detail) for what, detail in told]


def _cause(job: ReplayJob) -> str:
    """Return what a job says but for the times of probes, each of which may fail."""
    return _PROBE.sub("", job.said)


def _word(before: ReplayJob, after: ReplayJob) -> str:
    if before.status is JobStatus.PROPOSED and after.status is not JobStatus.CANCELLED:
        return "approved"
    return "resumed" if after.round > before.round else after.status.value


def _counts(job: ReplayJob) -> str:
    bad = job.failed + job.unanswered
    return f"{job.sent} sent, {job.handled} handled, {bad} failed, {job.refused} refused"
