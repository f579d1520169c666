"""Job view: what people see of a replay job: as JSON, its dry run, and the review of its edit.

The review is read from the very letter that is sent.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from angzarr.analysis.ledger.entry import HistoryLine
from angzarr.analysis.ledger.replay_options import AS_IT_IS, continued
from angzarr.analysis.replay.bulk_actions import mark_of
from angzarr.analysis.replay.edit import Difference, Sides, encrypted_differences
from angzarr.analysis.replay.editor import EditChanges, Editor
from angzarr.analysis.replay.job import (
    ALTERED,
    Candidate,
    JobEdit,
    JobItem,
    JobPage,
    JobPlan,
    ReplayJob,
    Selection,
    outdated,
)
from angzarr.analysis.replay.job_progress import altered
from angzarr.analysis.replay.job_store import ReplayJobs
from angzarr.analysis.replay.replay import Replayer
from angzarr.dead_letters.letter import DeadLetter, Refusal
from angzarr.dead_letters.sealed_letters import came_encrypted
from angzarr.errors import DecodeError, PayloadStoreUnavailable
from angzarr.runtime.failures import is_machine_fault


@dataclass(frozen=True, slots=True, kw_only=True)
class EditReview:
    """The changes that a job's edit makes, and why it is not sent or cannot be shown, if so."""

    entry_id: str
    changes: tuple[Difference, ...] = ()
    #: Given where not all of the changes are shown.
    whole: Sides | None = None
    #: Who approves the edit names this: it stands where all of the edit does, and nowhere else.
    mark: str = ""
    problem: str = ""
    #: Whether the problem may pass by itself.
    passes: bool = False
    #: Whether the data came encrypted: viewers do not see them.
    is_encrypted: bool = False

    def for_viewers(self) -> EditReview:
        """The review for who may not see encrypted data, nor approve them."""
        if not self.is_encrypted:
            return self
        return replace(self, changes=encrypted_differences(self.changes), whole=None, mark="")


def review(editor: Editor, jobs: ReplayJobs, job: ReplayJob) -> EditReview | None:
    """The review of *job*'s edit; None: it carries none."""
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
        is_encrypted=isinstance(edit.order.before, DeadLetter)
        and came_encrypted(edit.order.before),
    )


def review_json(review: EditReview | None) -> dict[str, Any] | None:
    """*review* as a JSON object; null without an edit."""
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
    """The edit that *job* began with, or why there is none."""
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


def _mark(job: ReplayJob, edit: JobEdit, told: EditChanges) -> str:
    """A digest of both letters, of their way, and of all that is shown of them."""
    plan = job.plan
    where = (plan.to_queue, plan.to_handler, plan.sequence, plan.config)
    shown = (job.id, edit.sha256, *where, told.changes, told.sides)
    return hashlib.sha256(json.dumps(shown, default=str).encode()).hexdigest()[:16]


#: The timekeeping of the engine is not shown.
_PRIVATE: Final = ("tokens", "filled_at", "recent", "stage_sent", "stage_answered")


def job_json(job: ReplayJob) -> dict[str, Any]:
    """*job* as a JSON object."""
    fields = {name: value for name, value in asdict(job).items() if name not in _PRIVATE}
    return fields | {"in_flight": job.out, "left": job.left}


def job_page_json(page: JobPage) -> dict[str, Any]:
    """*page* as a JSON object; `next` is the value for --after, or null."""
    return {"jobs": [job_json(job) for job in page.jobs], "next": page.next or None}


def item_json(item: JobItem) -> dict[str, Any]:
    """One entry of a job as a JSON object."""
    begun = item.round > 0
    return {
        "position": item.position,
        "id": item.entry_id,
        "state": item.state,
        "replay": item.replay if begun else None,
        "round": item.round if begun else None,
        "reason": item.reason or None,
    }


def job_detail_json(
    job: ReplayJob,
    history: Sequence[HistoryLine],
    refused: Sequence[JobItem],
    edit: EditReview | None,
) -> dict[str, Any]:
    """Everything about a job as a JSON object."""
    lines = [
        {"at": line.at, "who": line.who, "what": line.what, "detail": line.detail}
        for line in history
    ]
    return job_json(job) | {
        "history": lines,
        "edit_review": review_json(edit),
        "refused_entries": [{"id": one.entry_id, "reason": one.reason} for one in refused],
    }


#: Entries whose letters a dry run looks at, and which are counted before the question.
MOST_COUNTED: Final = 1000
AS_EVER: Final = JobPlan()


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """The entries that a job would send and refuse, of the first ones: the oldest failures."""

    looked_at: int
    would_send: int
    refused: dict[str, int]
    sample: tuple[str, ...]
    #: There are more entries than were looked at.
    more: bool
    #: The same where the job would have the same of those entries.
    mark: str


def dry_run(
    jobs: ReplayJobs,
    replayer: Replayer,
    selection: Selection,
    most_replays: int,
    plan: JobPlan = AS_EVER,
) -> DryRun:
    """Look at the letters of the entries that a job would choose; change nothing."""
    refused: Counter[str] = Counter()
    sendable: list[str] = []
    found = jobs.would_choose(selection, limit=MOST_COUNTED + 1)
    looked_at = found[:MOST_COUNTED]
    for one in looked_at:
        if problem := _obstacle(replayer, one, most_replays, plan):
            refused[problem] += 1
        else:
            sendable.append(one.entry.id)
    return DryRun(
        looked_at=len(looked_at),
        would_send=len(sendable),
        refused=dict(refused),
        sample=tuple(sendable[:5]),
        more=len(found) > MOST_COUNTED,
        mark=mark_of(one.entry.id for one in looked_at if not one.job),
    )


def _obstacle(replayer: Replayer, one: Candidate, most_replays: int, plan: JobPlan) -> str:
    """Why a job would not send an entry, or an empty string."""
    if one.job:
        return f"it is in job {one.job}, which is not finished"
    entry = one.entry
    if (detail := replayer.ledger.open(entry.id)) is None:
        return "it was removed"
    last = AS_IT_IS if plan.original else detail.unanswered
    if why := replayer.problem(entry, detail.failure, continued(plan.order, last)):
        return why
    if entry.replays >= most_replays:
        return f"it was replayed {entry.replays} times"
    return ""
