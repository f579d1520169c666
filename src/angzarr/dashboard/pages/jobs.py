"""Pages of replay jobs: all of them, one with its live progress, and steering it.

A job is paused, resumed, cancelled or approved as its page showed it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final, Literal, TypeAlias

from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from angzarr.analysis.replay.job import ItemState, JobStatus, ReplayJob
from angzarr.analysis.replay.job_limits import same_person
from angzarr.analysis.replay.job_view import review
from angzarr.dashboard import actions
from angzarr.dashboard.access import Caller, too_little
from angzarr.dashboard.api.jobs import REFUSED_SHOWN, JobId, edit_for
from angzarr.dashboard.api.requests import ItemQuery, JobQuery
from angzarr.dashboard.api.route import ServicesHere
from angzarr.dashboard.pages.edits import both
from angzarr.dashboard.pages.forms import filled
from angzarr.dashboard.pages.route import (
    LiveStep,
    caller_of,
    followed,
    form_of,
    go,
    operator_of,
    pages,
    render,
    write,
)
from angzarr.dashboard.paging import cursor_after, next_query, stale
from angzarr.dashboard.problem import Problem
from angzarr.dashboard.services import Services, item_page, job_of
from angzarr.settings.dashboard import Role

router = pages()
_ON_A_PAGE: Final = 50
#: How often a job that is watched is looked at.
LOOK_EVERY: Final = timedelta(seconds=1)
#: In these it does nothing before a person does something.
_WAITING: Final = frozenset({JobStatus.PROPOSED, JobStatus.PAUSED, JobStatus.HALTED})
LOOK_SELDOM: Final = timedelta(seconds=10)
#: In these a job does nothing more by itself.
_AT_REST: Final = frozenset({JobStatus.CANCELLED, JobStatus.DONE})


@router.get("/jobs")
def list_jobs(request: Request, services: ServicesHere) -> Response:
    """Show replay jobs, the newest first."""
    asked = filled(JobQuery, request)
    statuses = (asked.status,) if asked.status else ()
    page = services.jobs.get_jobs(statuses, limit=_ON_A_PAGE, after=cursor_after(asked.after))
    return render(request, "jobs.html", jobs=page.jobs, next_page=next_query(request, page.next))


@router.get("/jobs/{job_id}")
def show_job(request: Request, services: ServicesHere, job_id: JobId) -> Response:
    """Show one job and how far it is."""
    job = job_of(services, job_id)
    edit = review(services.editor, services.jobs, job)
    if edit is not None:
        edit = edit_for(request, caller_of(request), edit)
    return render(
        request,
        "job.html",
        job=job,
        live=job.status not in _AT_REST,
        steers=steers(caller_of(request), job),
        asks=ASKS,
        stand=stand,
        edit=edit,
        whole=both(edit.whole) if edit else None,
        refused=services.jobs.items(job_id, (ItemState.REFUSED,), limit=REFUSED_SHOWN),
        history=services.jobs.job_history(job_id),
    )


@router.get("/jobs/{job_id}/items")
def list_items(request: Request, services: ServicesHere, job_id: JobId) -> Response:
    """Show the entries of a job, and what became of each."""
    asked = filled(ItemQuery, request)
    items, following = item_page(services, job_id, asked.states(), asked.after, asked.limit)
    return render(
        request,
        "job_items.html",
        job=job_of(services, job_id),
        items=items,
        asked=asked,
        states=list(ItemState),
        next_page=next_query(request, following),
    )


@router.get("/jobs/{job_id}/events")
async def follow_job(request: Request, services: ServicesHere, job_id: JobId) -> Response:
    """Tell a page of each step of a job, until the job rests or the page is gone."""
    job = await run_in_threadpool(job_of, services, job_id)
    return followed(request, services.clock, lambda: _step(services, job))


def _step(services: Services, followed_job: ReplayJob) -> LiveStep:
    """The present look of a job that was followed when it was *followed_job*."""
    job = job_of(services, followed_job.id)
    html = write("progress.html", job=job, now=services.clock.now())
    is_over = job.status is not followed_job.status or job.status in _AT_REST
    pause = LOOK_SELDOM if job.status in _WAITING else LOOK_EVERY
    return LiveStep(html, pause, job.status.value if is_over else "")


How: TypeAlias = Literal["pause", "resume", "cancel", "approve"]
#: What a person can do to a job, by its status.
_STEERS: Final[dict[JobStatus, tuple[How, ...]]] = {
    JobStatus.PROPOSED: ("approve", "cancel"),
    JobStatus.RUNNING: ("pause", "cancel"),
    JobStatus.PAUSED: ("resume", "cancel"),
    JobStatus.HALTED: ("resume", "cancel"),
}
#: These ask first: nothing takes them back.
ASKS: Final = frozenset({"approve", "cancel"})
#: Entries of a job that its approver is shown by name.
_NAMED: Final = 50
#: A job that runs goes on between a look and the deed: so often that is tried.
_TRIES: Final = 5
_CHANGED: Final = 412


def steers(caller: Caller, job: ReplayJob) -> tuple[How, ...]:
    """All that *caller* can do to *job*."""
    approves = caller.role.covers(Role.APPROVER) and not same_person(caller.name, job.created_by)
    return tuple(one for one in _STEERS.get(job.status, ()) if one != "approve" or approves)


def stand(job: ReplayJob, how: How) -> str:
    """The state of a job that its form remembers.

    Each step of a job that runs is a revision; that it went on changes nothing about pausing it.
    """
    seen = f"{job.status}-{job.round}"
    return f"{seen}-{job.revision}" if how == "approve" else seen


@router.get("/jobs/{job_id}/{how}")
def ask(request: Request, services: ServicesHere, job_id: JobId, how: How) -> Response:
    """Show all that a job is, and ask whether it is meant."""
    operator_of(request)
    job = job_of(services, job_id)
    _check(caller_of(request), job, how)
    return _question(request, services, job, how)


@router.post("/jobs/{job_id}/{how}")
def steer(request: Request, services: ServicesHere, job_id: JobId, how: How) -> Response:
    """Pause a job, go on with it, end it or let it begin; where it stands otherwise, ask again."""
    caller, form = caller_of(request), form_of(request)
    seen, mark = form.get("seen"), form.get("mark", "")
    for _ in range(_TRIES):
        job = job_of(services, job_id)
        _check_role(caller, how)
        if seen != stand(job, how):
            return _question(request, services, job, how, status=_CHANGED)
        try:
            actions.steer_job(services, job_id, how, by=caller, revision=job.revision, mark=mark)
        except Problem as problem:
            if problem.status != _CHANGED:
                raise
        else:
            return go(f"/jobs/{job_id}?done={how}")
    raise stale("job")


def _check(caller: Caller, job: ReplayJob, how: How) -> None:
    """Refuse to ask for what would be refused."""
    _check_role(caller, how)
    if how == "approve" and same_person(caller.name, job.created_by):
        raise actions.own_proposal(job, caller)
    if how not in _STEERS.get(job.status, ()):
        raise Problem(409, "does-not-apply", f"a job that is {job.status} cannot {how}")


def _check_role(caller: Caller, how: How) -> None:
    if how == "approve" and not caller.role.covers(Role.APPROVER):
        raise too_little(caller, Role.APPROVER)


def _question(
    request: Request, services: Services, job: ReplayJob, how: How, *, status: int = 200
) -> Response:
    edit = review(services.editor, services.jobs, job)
    whole = both(edit.whole) if edit else None
    unseen = how == "approve" and edit is not None and edit.whole is not None and whole is None
    return render(
        request,
        "confirm_steer.html",
        status=status,
        job=job,
        how=how,
        can=how in steers(caller_of(request), job) and not unseen,
        seen=stand(job, how),
        mark=edit.mark if edit and not unseen else "",
        is_changed=status == _CHANGED,
        items=services.jobs.items(job.id, limit=_NAMED),
        edit=edit,
        whole=whole,
    )
