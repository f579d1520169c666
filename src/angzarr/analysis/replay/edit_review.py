"""EditReview: what whoever approves an edit is shown, read from the very letter that is sent."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from angzarr.analysis.replay.edit_differences import Difference, Sides
from angzarr.analysis.replay.editor import Editor, Told
from angzarr.analysis.replay.job import ReplayJob, ReplayJobs
from angzarr.analysis.replay.job_edit import ALTERED, JobEdit, outdated
from angzarr.analysis.replay.job_rules import altered
from angzarr.dead_letters.refusal import Refusal
from angzarr.errors import DecodeError, PayloadStoreUnavailable
from angzarr.runtime.machine_faults import is_machine_fault


@dataclass(frozen=True, slots=True, kw_only=True)
class EditReview:
    """The changes that a job's edit makes, and why it is not sent or cannot be shown, if so."""

    entry_id: str
    changes: tuple[Difference, ...] = ()
    #: Given where not all of the changes are told.
    whole: Sides | None = None
    #: Who approves the edit names this: it stands where all of the edit does, and nowhere else.
    mark: str = ""
    problem: str = ""
    #: Whether the problem may pass by itself.
    passes: bool = False


def review(editor: Editor, jobs: ReplayJobs, job: ReplayJob) -> EditReview | None:
    """Return the review of *job*'s edit; None: it carries none."""
    if not job.edit:
        return None
    edit = _edit_of(jobs, job)
    if isinstance(edit, Refusal):
        return EditReview(entry_id=next(iter(job.selection.entry_ids), ""), problem=edit)
    try:
        told = editor.told(edit.order)
    except PayloadStoreUnavailable:
        away = "it cannot be shown: its payload cannot be had now"
        return EditReview(entry_id=edit.entry_id, problem=away, passes=True)
    if isinstance(told, Refusal):
        return EditReview(entry_id=edit.entry_id, problem=f"it cannot be shown: {told}")
    problem = _problem(editor, edit) if job.left else ""
    return EditReview(
        entry_id=edit.entry_id,
        changes=told.changes,
        whole=told.whole,
        mark="" if problem else _mark(job, edit, told),
        problem=problem,
    )


def review_json(review: EditReview | None) -> dict[str, Any] | None:
    """Return *review* as a JSON object; null where there is no edit."""
    if review is None:
        return None
    changes = [one._asdict() for one in review.changes]
    return {
        "entry_id": review.entry_id,
        "changes": changes,
        "whole": review.whole and review.whole._asdict(),
        "mark": review.mark or None,
        "problem": review.problem or None,
    }


def _edit_of(jobs: ReplayJobs, job: ReplayJob) -> JobEdit | Refusal:
    """Return the edit that *job* began with, or why there is none."""
    try:
        edit = jobs.job_edit(job.id)
    except DecodeError as error:
        if is_machine_fault(error):
            raise
        return Refusal(ALTERED)
    if edit is None:
        return Refusal("its entry was removed, and the edit with it")
    return Refusal(ALTERED) if altered(job, edit) else edit


def _problem(editor: Editor, edit: JobEdit) -> str:
    detail = editor.replayer.ledger.open(edit.entry_id)
    return outdated(edit, detail.entry if detail else None)


def _mark(job: ReplayJob, edit: JobEdit, told: Told) -> str:
    """Return what stands for both letters, for how they go, and for all that is shown of them."""
    plan = job.plan
    where = (plan.to_queue, plan.to_handler, plan.sequence)
    shown = (job.id, edit.sha256, *where, told.changes, told.sides)
    return hashlib.sha256(json.dumps(shown, default=str).encode()).hexdigest()[:16]
