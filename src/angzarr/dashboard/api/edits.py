"""Edits over HTTP: the data that one begins with, its dry run, and its replay or proposal (A5)."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

from fastapi import Depends, Header, Query, Request
from starlette.responses import Response

from angzarr.analysis.replay.edit import read_data
from angzarr.analysis.replay.editor import Draft
from angzarr.analysis.replay.job_view import job_json
from angzarr.dashboard.api.asked import DataQuery, NewEdit
from angzarr.dashboard.api.entries import IfMatch
from angzarr.dashboard.api.route import (
    PREFIX,
    CallerHere,
    DeskHere,
    acting,
    answer,
    problems,
    seeing,
)
from angzarr.dashboard.api.shapes import DataShape, DraftShape, EntryId, JobShape
from angzarr.dashboard.edits import Edit, begin_edit, data_of, draft_of, editable
from angzarr.dashboard.problem import Problem
from angzarr.dashboard.revision import seen, tag_of
from angzarr.dead_letters.letter import Refusal

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


async def _read_strictly(request: Request) -> None:
    """Refuse a body that is read in two ways: a name said twice, no number, nested too deep."""
    body = await request.body()
    try:
        read = read_data(body.decode(json.detect_encoding(body)), around=1)
    except UnicodeDecodeError:
        raise Problem(400, "bad-request", "the body is not UTF-8 text") from None
    if isinstance(read, Refusal):
        raise Problem(422, "invalid", read)


@act.get("/entries/{entry_id}/data", response_model=DataShape, responses={**_NONE, **_NOT_NOW})
def show_data(desk: DeskHere, entry_id: EntryId, asked: Annotated[DataQuery, Query()]) -> Response:
    """Return the data that an edit begins with; what is hidden is a mark, to be left in place."""
    found = editable(desk, entry_id, original=asked.original)
    return answer({"data": data_of(desk, found)}, headers={"ETag": tag_of(found.entry.revision)})


@act.post(
    "/entries/{entry_id}/edits",
    status_code=201,
    response_model=JobShape,
    responses={
        200: {"model": DraftShape, "description": "What it would change."},
        **_NONE,
        **_STALE,
    },
    dependencies=[Depends(_read_strictly)],
)
def edit_entry(
    desk: DeskHere,
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
    )
    if asked.dry_run:
        _, draft = draft_of(desk, edit)
        return answer(draft_json(draft, needs_approval=desk.approves_edits))
    job = begin_edit(desk, edit, by=caller, key=said.key)
    where = f"{PREFIX}/jobs/{job.id}"
    return answer(job_json(job), 201, {"Location": where, "ETag": tag_of(job.revision)})


def draft_json(draft: Draft | Refusal, *, needs_approval: bool) -> dict[str, Any]:
    """Return what an edit would change, or why it would not be sent, as a JSON object."""
    changes, whole = (draft.changes, draft.whole) if isinstance(draft, Draft) else ((), None)
    return {
        "changes": [one._asdict() for one in changes],
        "whole": whole and whole._asdict(),
        "problem": draft if isinstance(draft, Refusal) else None,
        "needs_approval": needs_approval,
    }
