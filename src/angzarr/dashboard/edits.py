"""Edits: an event is given other data and replayed, or that is proposed; for API and pages (A5)."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from typing import Any, NamedTuple

from angzarr.analysis.ledger.entry import Entry, EntryDetail
from angzarr.analysis.ledger.failure import Failure
from angzarr.analysis.ledger.replay_options import Expectation, ReplayOrder
from angzarr.analysis.ledger.transition import replayable
from angzarr.analysis.replay.edit import Unfit
from angzarr.analysis.replay.editor import Draft, edited_from
from angzarr.analysis.replay.job import JobPlan, ReplayJob, Selection, job_edit, plan_for
from angzarr.dashboard.access import Caller
from angzarr.dashboard.deeds import check_target, named
from angzarr.dashboard.desk import Desk
from angzarr.dashboard.look import detail_of
from angzarr.dashboard.problem import Problem
from angzarr.dashboard.revision import stale
from angzarr.dead_letters.letter import Refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """What a caller wants of an entry that he saw at `revision`; None: he does not say which."""

    entry_id: str
    data: Any
    #: Whether the edit is one of the data before the last edit.
    original: bool = False
    revision: int | None = None
    note: str = ""
    #: Elsewhere than its letter says.
    to_queue: str = ""
    to_handler: str = ""
    sequence: Expectation = Expectation.AS_IS

    @property
    def plan(self) -> JobPlan:
        """The plan of its job."""
        order = ReplayOrder(
            to_queue=self.to_queue, to_handler=self.to_handler, sequence=self.sequence
        )
        return plan_for(order)


class Editable(NamedTuple):
    """An entry, the letter that an edit of it begins with, and the one that it is sent instead."""

    entry: Entry
    failure: Failure
    now: Failure


def editable(desk: Desk, entry_id: str, *, original: bool, revision: int | None = None) -> Editable:
    """Return what is edited; raises Problem 404, 409 or 412 where there can be no edit."""
    detail = detail_of(desk, entry_id)
    entry = detail.entry
    if revision is not None and entry.revision != revision:
        raise stale("entry")
    if not replayable(entry):
        msg = f"the entry is {entry.status}"
        raise _refused(msg)
    if entry.replays >= desk.most_replays:
        forced = f"angzarr dlq edit {entry.id} --force sends it"
        cure = "raise analysis.most_replays" if desk.approves_edits else forced
        msg = f"it was replayed {entry.replays} times: {cure}"
        raise _refused(msg)
    now = detail.unanswered.letter or detail.failure
    return Editable(entry, _begins_with(detail, original=original), now)


def data_of(desk: Desk, wanted: Editable) -> Any:
    """Return the data that may be seen and changed; raises Problem 409."""
    data = desk.editor.shown(wanted.failure)
    if isinstance(data, Refusal):
        raise _refused(data)
    return data


def draft_of(desk: Desk, edit: Edit) -> tuple[Editable, Draft | Refusal]:
    """Return the edit as it would be sent, or why it would not; raises as `editable` does."""
    check_target(desk, edit.plan.order)
    found = editable(desk, edit.entry_id, original=edit.original, revision=edit.revision)
    draft = desk.editor.draft(
        found.entry, found.failure, edit.data, now=found.now, to_handler=edit.to_handler
    )
    return found, draft


def begin_edit(desk: Desk, edit: Edit, *, by: Caller, key: str | None) -> ReplayJob:
    """Begin the job that sends *edit*, proposed where edits need approval.

    The same *key* of one caller for the same edit twice is one job, also once that was sent.
    """
    data = json.dumps(edit.data, sort_keys=True)
    asked = (by.name, key, edit.entry_id, data, edit.original, edit.note, edit.plan.order)
    job_id = named(*asked) if key else secrets.token_hex(16)
    if key and (job := desk.jobs.open_job(job_id)):
        return _begun(job)
    (entry, *_), draft = draft_of(desk, edit)
    if isinstance(draft, Unfit):
        raise Problem(422, "unfit", draft)
    if isinstance(draft, Refusal):
        raise _refused(draft)
    job = desk.jobs.begin(
        Selection(entry_ids=(entry.id,)),
        edit.plan,
        by=by.name,
        note=edit.note,
        job_id=job_id,
        edit=job_edit(entry, draft.order, needs_approval=desk.approves_edits),
    )
    return _begun(job)


def _begun(job: ReplayJob) -> ReplayJob:
    if not job.total:
        raise _refused(job.said or "the entry was changed meanwhile")
    return job


def _begins_with(detail: EntryDetail, *, original: bool) -> Failure:
    failure = edited_from(detail, original=original)
    if isinstance(failure, Refusal):
        raise _refused(failure)
    return failure


def _refused(why: str) -> Problem:
    return Problem(409, "does-not-apply", why)
