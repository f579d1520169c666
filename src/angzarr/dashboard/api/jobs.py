"""Replay jobs over HTTP: begin, list, show, pause, resume, cancel."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final, Literal

from fastapi import Header, Path, Query, Request
from starlette.responses import Response

from angzarr.analysis.replay.job import ItemState
from angzarr.analysis.replay.job_view import (
    EditReview,
    item_json,
    job_detail_json,
    job_json,
    job_page_json,
    review,
)
from angzarr.dashboard import actions
from angzarr.dashboard.access import Caller
from angzarr.dashboard.api.edits import note_opened
from angzarr.dashboard.api.entries import IfMatch
from angzarr.dashboard.api.requests import ItemQuery, JobQuery, NewJob
from angzarr.dashboard.api.route import (
    PREFIX,
    CallerHere,
    ServicesHere,
    acting,
    answer,
    approving,
    problems,
    seeing,
)
from angzarr.dashboard.api.shapes import (
    DryRunShape,
    ItemPageShape,
    JobDetailShape,
    JobPageShape,
    JobShape,
)
from angzarr.dashboard.paging import cursor_after, next_link, sealed, seen, seen_with, tag_of
from angzarr.dashboard.preconditions import job_as_seen, see_job
from angzarr.dashboard.problem import Problem
from angzarr.dashboard.services import item_page, job_of
from angzarr.settings.dashboard import Role

see = seeing("jobs")
act = acting("jobs")
approve = approving("jobs")
#: Entries that a job did not send and that are named.
REFUSED_SHOWN: Final = 100
_NONE: Final = problems({404: "There is no such job."})
_STALE: Final = problems({400: "If-Match is not an ETag.", 412: "It went on meanwhile."})
JobId = Annotated[str, Path(pattern=r"^[0-9A-Za-z_-]{1,64}$")]


@see.get("/jobs", response_model=JobPageShape, responses=problems({400: "No cursor."}))
def list_jobs(
    request: Request, services: ServicesHere, asked: Annotated[JobQuery, Query()]
) -> Response:
    """List replay jobs, the newest first."""
    statuses = (asked.status,) if asked.status else ()
    page = services.jobs.get_jobs(statuses, limit=asked.limit, after=cursor_after(asked.after))
    told = job_page_json(page) | {"next": sealed(page.next) or None}
    return answer(told, headers=next_link(request, page.next))


def edit_for(request: Request, caller: Caller, edit: EditReview) -> EditReview:
    """*edit* as *caller* may see it; that encrypted data are shown is written into the log."""
    if not caller.role.covers(Role.OPERATOR):
        return edit.for_viewers()
    note_opened(request, caller, encrypted=edit.is_encrypted)
    return edit


@see.get("/jobs/{job_id}", response_model=JobDetailShape, responses=_NONE)
def show_job(
    request: Request, caller: CallerHere, services: ServicesHere, job_id: JobId
) -> Response:
    """Return one job, how far it is, and what happened to it."""
    job = job_of(services, job_id)
    refused = services.jobs.items(job_id, (ItemState.REFUSED,), limit=REFUSED_SHOWN)
    edit = review(services.editor, services.jobs, job)
    if edit is not None:
        edit = edit_for(request, caller, edit)
    told = job_detail_json(job, services.jobs.job_history(job_id), refused, edit)
    return answer(told, headers={"ETag": tag_of(job.revision, edit.mark if edit else "")})


@see.get(
    "/jobs/{job_id}/items",
    response_model=ItemPageShape,
    responses={**_NONE, **problems({400: "No cursor."})},
)
def list_items(
    request: Request, services: ServicesHere, job_id: JobId, asked: Annotated[ItemQuery, Query()]
) -> Response:
    """List the entries of a job in its order: which, and what became of each."""
    job_of(services, job_id)
    found, following = item_page(services, job_id, asked.states(), asked.after, asked.limit)
    told = {"items": [item_json(one) for one in found], "next": sealed(following) or None}
    return answer(told, headers=next_link(request, following))


@act.post(
    "/jobs",
    status_code=201,
    response_model=JobShape,
    responses={
        200: {"model": DryRunShape, "description": "What it would replay."},
        **problems({412: "By now it is about other entries; nothing was begun."}),
    },
)
def begin_job(
    services: ServicesHere,
    caller: CallerHere,
    asked: NewJob,
    idempotency_key: Annotated[str | None, Header(include_in_schema=False)] = None,
) -> Response:
    """Replay entries, beginning with a canary; the job stops itself where too many fail again.

    One of more entries than `analysis.approvals.jobs_over` waits for another person's approval.
    """
    selection, plan = asked.selection(), asked.plan.plan()
    if asked.dry_run:
        actions.check_versions(services, plan.order)
        return answer(see_job(services, selection, plan))
    key = idempotency_key
    id_of = partial(actions.job_id_of, plan=plan, by=caller, note=asked.note, key=key or "")
    selection = job_as_seen(services, selection, plan, asked.precondition, id_of)
    job = actions.begin_job(services, selection, plan, by=caller, note=asked.note, key=key)
    where = f"{PREFIX}/jobs/{job.id}"
    return answer(job_json(job), 201, {"Location": where, "ETag": tag_of(job.revision)})


def _steering(how: Literal["pause", "resume", "cancel"], does: str) -> None:
    """Add the route that steers a job; one path each, so that no other path is taken for one."""

    @act.post(
        f"/jobs/{{job_id}}/{how}",
        name=f"{how}_job",
        description=does,
        response_model=JobShape,
        responses={**_NONE, **_STALE},
    )
    def steer_job(
        services: ServicesHere, caller: CallerHere, job_id: JobId, if_match: IfMatch = None
    ) -> Response:
        job = actions.steer_job(services, job_id, how, by=caller, revision=seen(if_match))
        return answer(job_json(job), headers={"ETag": tag_of(job.revision)})


_MOVES: Final = (
    "The revision of a job that runs goes up with each step: `If-Match` is for one at rest."
)
_steering("pause", f"Let nothing more of a job begin. {_MOVES}")
_steering("resume", f"Go on with a job in a new canary. {_MOVES}")
_steering("cancel", f"End a job. {_MOVES}")


@approve.post(
    "/jobs/{job_id}/approve",
    response_model=JobShape,
    responses={**_NONE, **_STALE, **problems({428: "If-Match is missing, or is *."})},
)
def approve_job(
    services: ServicesHere, caller: CallerHere, job_id: JobId, if_match: IfMatch = None
) -> Response:
    """Let a job begin that somebody else proposed; `If-Match` names what you saw of it.

    That of a job with an edit comes with the job itself, which tells all of the edit.
    """
    revision, mark = seen_with(if_match)
    if revision is None:
        msg = "send If-Match with the ETag of the job that you looked at"
        raise Problem(428, "if-match-missing", msg)
    job = actions.steer_job(services, job_id, "approve", by=caller, revision=revision, mark=mark)
    return answer(job_json(job), headers={"ETag": tag_of(job.revision)})
