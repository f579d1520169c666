"""Pages of replay jobs: all of them, and one whose progress is shown as it happens."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from angzarr.analysis.replay.job import ItemState, JobStatus, ReplayJob
from angzarr.analysis.replay.job_view import review
from angzarr.dashboard.api.asked import ItemQuery, JobQuery
from angzarr.dashboard.api.jobs import REFUSED_SHOWN, JobId
from angzarr.dashboard.api.route import DeskHere
from angzarr.dashboard.desk import Desk
from angzarr.dashboard.look import item_page, job_of
from angzarr.dashboard.pages.asked import filled
from angzarr.dashboard.pages.edits import both
from angzarr.dashboard.pages.following import Step, followed
from angzarr.dashboard.pages.paper import write
from angzarr.dashboard.pages.route import caller_of, pages, render
from angzarr.dashboard.pages.steering import ASKS, stand, steers
from angzarr.dashboard.paging import next_query, page_after

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
def list_jobs(request: Request, desk: DeskHere) -> Response:
    """Show replay jobs, the newest first."""
    asked = filled(JobQuery, request)
    statuses = (asked.status,) if asked.status else ()
    page = page_after(
        asked.after, lambda after: desk.jobs.get_jobs(statuses, limit=_ON_A_PAGE, after=after)
    )
    return render(request, "jobs.html", jobs=page.jobs, next_page=next_query(request, page.next))


@router.get("/jobs/{job_id}")
def show_job(request: Request, desk: DeskHere, job_id: JobId) -> Response:
    """Show one job and how far it is."""
    job = job_of(desk, job_id)
    edit = review(desk.editor, desk.jobs, job)
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
        refused=desk.jobs.items(job_id, (ItemState.REFUSED,), limit=REFUSED_SHOWN),
        history=desk.jobs.job_history(job_id),
    )


@router.get("/jobs/{job_id}/items")
def list_items(request: Request, desk: DeskHere, job_id: JobId) -> Response:
    """Show the entries of a job, and what became of each."""
    asked = filled(ItemQuery, request)
    items, following = item_page(desk, job_id, asked.states(), asked.after, asked.limit)
    return render(
        request,
        "job_items.html",
        job=job_of(desk, job_id),
        items=items,
        asked=asked,
        states=list(ItemState),
        next_page=next_query(request, following),
    )


@router.get("/jobs/{job_id}/events")
async def follow_job(request: Request, desk: DeskHere, job_id: JobId) -> Response:
    """Tell a page of each step of a job, until the job rests or the page is gone."""
    job = await run_in_threadpool(job_of, desk, job_id)
    return followed(request, desk.clock, lambda: _step(desk, job))


def _step(desk: Desk, followed_job: ReplayJob) -> Step:
    """Return how a job looks now that was followed when it was *followed_job*."""
    job = job_of(desk, followed_job.id)
    html = write("progress.html", job=job, now=desk.clock.now())
    is_over = job.status is not followed_job.status or job.status in _AT_REST
    pause = LOOK_SELDOM if job.status in _WAITING else LOOK_EVERY
    return Step(html, pause, job.status.value if is_over else "")
