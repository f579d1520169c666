"""Edits over HTTP: the data that an edit begins with, its dry run, its replay or proposal (A5).

Pages edit by the same functions.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

from fastapi import Depends, Header, Query, Request
from starlette.responses import Response

from angzarr.analysis.ledger.entry import Entry
from angzarr.analysis.ledger.failure import Failure
from angzarr.analysis.ledger.replay_options import Expectation, ReplayOrder
from angzarr.analysis.ledger.transition import replayable
from angzarr.analysis.replay.edit import Unfit
from angzarr.analysis.replay.editor import Draft, edited_from
from angzarr.analysis.replay.job import JobPlan, ReplayJob, Selection, job_edit, plan_for
from angzarr.analysis.replay.job_view import job_json
from angzarr.dashboard import access
from angzarr.dashboard.access import Caller
from angzarr.dashboard.actions import check_target, id_for
from angzarr.dashboard.api.entries import IfMatch
from angzarr.dashboard.api.requests import DataQuery, NewEdit, said_once
from angzarr.dashboard.api.route import (
    PREFIX,
    CallerHere,
    ServicesHere,
    acting,
    answer,
    problems,
    seeing,
)
from angzarr.dashboard.api.shapes import DataShape, DraftShape, EntryId, JobShape
from angzarr.dashboard.paging import seen, stale, tag_of
from angzarr.dashboard.problem import Problem
from angzarr.dashboard.services import Services, detail_of
from angzarr.dead_letters.letter import DeadLetter, Refusal
from angzarr.dead_letters.sealed_letters import came_encrypted


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
    config: tuple[tuple[str, str], ...] = ()

    @property
    def plan(self) -> JobPlan:
        """The plan of its job."""
        order = ReplayOrder(
            to_queue=self.to_queue,
            to_handler=self.to_handler,
            sequence=self.sequence,
            config=self.config,
        )
        return plan_for(order)


class Editable(NamedTuple):
    """An entry, the letter that an edit of it begins with, and the one that it is sent instead."""

    entry: Entry
    failure: Failure
    now: Failure

    @property
    def came_encrypted(self) -> bool:
        """True if its data can be seen only because this app has their key."""
        return isinstance(self.failure, DeadLetter) and came_encrypted(self.failure)


def editable(
    services: Services, entry_id: str, *, original: bool, revision: int | None = None
) -> Editable:
    """The entry and its letters to edit; raises Problem 404, 409 or 412 where it cannot be."""
    detail = detail_of(services, entry_id)
    entry = detail.entry
    if revision is not None and entry.revision != revision:
        raise stale("entry")
    if not replayable(entry):
        msg = f"the entry is {entry.status}"
        raise _refused(msg)
    if entry.replays >= services.most_replays:
        forced = f"angzarr dlq edit {entry.id} --force sends it"
        cure = "raise analysis.most_replays" if services.approves_edits else forced
        msg = f"it was replayed {entry.replays} times: {cure}"
        raise _refused(msg)
    failure = edited_from(detail, original=original)
    if isinstance(failure, Refusal):
        raise _refused(failure)
    return Editable(entry, failure, detail.unanswered.letter or detail.failure)


def data_of(services: Services, wanted: Editable) -> Any:
    """The data that may be seen and changed; raises Problem 409."""
    data = services.editor.shown(wanted.failure)
    if isinstance(data, Refusal):
        raise _refused(data)
    return data


def note_opened(request: Request, caller: Caller, *, encrypted: bool) -> None:
    """Write into the log that *caller* was shown data, if they came *encrypted*."""
    if encrypted:
        access.note(access.OPENED, request.scope, caller.name)


def draft_of(services: Services, edit: Edit) -> tuple[Editable, Draft | Refusal]:
    """The edit as it would be sent, or why it would not; raises as `editable` does."""
    check_target(services, edit.plan.order)
    found = editable(services, edit.entry_id, original=edit.original, revision=edit.revision)
    draft = services.editor.draft(
        found.entry, found.failure, edit.data, now=found.now, to_handler=edit.to_handler
    )
    return found, draft


def begin_edit(services: Services, edit: Edit, *, by: Caller, key: str | None) -> ReplayJob:
    """Begin the job that sends *edit*, proposed where edits need approval.

    The same *key* of one caller for the same edit twice is one job, also once that was sent.
    """
    data = json.dumps(edit.data, sort_keys=True)
    asked = (by.name, key, edit.entry_id, data, edit.original, edit.note, edit.plan.order)
    job_id = id_for(*asked) if key else secrets.token_hex(16)
    if key and (job := services.jobs.open_job(job_id)):
        return _begun(job)
    (entry, *_), draft = draft_of(services, edit)
    if isinstance(draft, Unfit):
        raise Problem(422, "unfit", draft)
    if isinstance(draft, Refusal):
        raise _refused(draft)
    job = services.jobs.begin(
        Selection(entry_ids=(entry.id,)),
        edit.plan,
        by=by.name,
        note=edit.note,
        job_id=job_id,
        edit=job_edit(entry, draft.order, needs_approval=services.approves_edits),
    )
    return _begun(job)


def _begun(job: ReplayJob) -> ReplayJob:
    if not job.total:
        raise _refused(job.said or "the entry was changed meanwhile")
    return job


def _refused(why: str) -> Problem:
    return Problem(409, "does-not-apply", why)


see = seeing("entries")
act = acting("entries")
_NONE: Final = problems({404: "There is no such entry."})
_STALE: Final = problems({400: "If-Match is not an ETag.", 412: "It was changed meanwhile."})
_NOT_NOW: Final = problems({409: "It cannot be edited now, or its data cannot be had."})


class _Conditions(NamedTuple):
    """What a request says in its headers: the revision that was seen, its own key."""

    revision: int | None
    key: str | None


def _conditions(
    if_match: IfMatch = None,
    idempotency_key: Annotated[str | None, Header(include_in_schema=False)] = None,
) -> _Conditions:
    return _Conditions(seen(if_match), idempotency_key)


_ConditionsHere: TypeAlias = Annotated[_Conditions, Depends(_conditions)]


@act.get("/entries/{entry_id}/data", response_model=DataShape, responses={**_NONE, **_NOT_NOW})
def show_data(
    request: Request,
    services: ServicesHere,
    caller: CallerHere,
    entry_id: EntryId,
    asked: Annotated[DataQuery, Query()],
) -> Response:
    """Return the data that an edit begins with; what is hidden is a mark, to be left in place."""
    found = editable(services, entry_id, original=asked.original)
    data = data_of(services, found)
    note_opened(request, caller, encrypted=found.came_encrypted)
    return answer({"data": data}, headers={"ETag": tag_of(found.entry.revision)})


@act.post(
    "/entries/{entry_id}/edits",
    status_code=201,
    response_model=JobShape,
    responses={
        200: {"model": DraftShape, "description": "What it would change."},
        **_NONE,
        **_STALE,
    },
    dependencies=[Depends(said_once)],
)
def edit_entry(
    request: Request,
    services: ServicesHere,
    *,
    caller: CallerHere,
    entry_id: EntryId,
    asked: NewEdit,
    said: _ConditionsHere,
) -> Response:
    """Replay an entry with other data, as a job over it alone.

    With `analysis.approvals.edits` the job is proposed: another person approves exactly this edit.
    """
    edit = Edit(
        entry_id=entry_id,
        data=asked.data,
        original=asked.original,
        revision=said.revision,
        note=asked.note,
        to_queue=asked.to_queue,
        to_handler=asked.to_handler,
        sequence=asked.sequence,
        config=tuple(sorted(asked.config.items())),
    )
    if asked.dry_run:
        found, draft = draft_of(services, edit)
        note_opened(request, caller, encrypted=found.came_encrypted)
        return answer(draft_json(draft, needs_approval=services.approves_edits))
    job = begin_edit(services, edit, by=caller, key=said.key)
    where = f"{PREFIX}/jobs/{job.id}"
    return answer(job_json(job), 201, {"Location": where, "ETag": tag_of(job.revision)})


def draft_json(draft: Draft | Refusal, *, needs_approval: bool) -> dict[str, Any]:
    """The changes of an edit, or why it would not be sent, as a JSON object."""
    changes, whole = (draft.changes, draft.whole) if isinstance(draft, Draft) else ((), None)
    return {
        "changes": [one._asdict() for one in changes],
        "whole": whole and whole._asdict(),
        "problem": draft if isinstance(draft, Refusal) else None,
        "needs_approval": needs_approval,
    }
