"""Pages on which a replay job is paused, resumed, cancelled or approved, as it was seen there."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from fastapi import Request
from starlette.responses import Response

from angzarr.analysis.replay.job import JobStatus, ReplayJob
from angzarr.analysis.replay.job_limits import same_person
from angzarr.analysis.replay.job_view import review
from angzarr.dashboard import deeds
from angzarr.dashboard.access import Caller, too_little
from angzarr.dashboard.api.jobs import JobId
from angzarr.dashboard.api.route import DeskHere
from angzarr.dashboard.desk import Desk
from angzarr.dashboard.look import job_of
from angzarr.dashboard.pages.edits import both
from angzarr.dashboard.pages.route import caller_of, form_of, go, operator_of, pages, render
from angzarr.dashboard.problem import Problem
from angzarr.dashboard.revision import stale
from angzarr.settings.dashboard import Role

router = pages()
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
    """Return what *caller* can do to *job*."""
    approves = caller.role.covers(Role.APPROVER) and not same_person(caller.name, job.created_by)
    return tuple(one for one in _STEERS.get(job.status, ()) if one != "approve" or approves)


def stand(job: ReplayJob, how: How) -> str:
    """Return what a form remembers of the job that it is about.

    Each step of a job that runs is a revision; that it went on changes nothing about pausing it.
    """
    seen = f"{job.status}-{job.round}"
    return f"{seen}-{job.revision}" if how == "approve" else seen


@router.get("/jobs/{job_id}/{how}")
def ask(request: Request, desk: DeskHere, job_id: JobId, how: How) -> Response:
    """Show all that a job is, and ask whether it is meant."""
    operator_of(request)
    job = job_of(desk, job_id)
    _check(caller_of(request), job, how)
    return _question(request, desk, job, how)


@router.post("/jobs/{job_id}/{how}")
def steer(request: Request, desk: DeskHere, job_id: JobId, how: How) -> Response:
    """Pause a job, go on with it, end it or let it begin; where it stands otherwise, ask again."""
    caller, form = caller_of(request), form_of(request)
    seen, mark = form.get("seen"), form.get("mark", "")
    for _ in range(_TRIES):
        job = job_of(desk, job_id)
        _check_role(caller, how)
        if seen != stand(job, how):
            return _question(request, desk, job, how, status=_CHANGED)
        try:
            deeds.steer_job(desk, job_id, how, by=caller, revision=job.revision, mark=mark)
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
        raise deeds.own_proposal(job, caller)
    if how not in _STEERS.get(job.status, ()):
        raise Problem(409, "does-not-apply", f"a job that is {job.status} cannot {how}")


def _check_role(caller: Caller, how: How) -> None:
    if how == "approve" and not caller.role.covers(Role.APPROVER):
        raise too_little(caller, Role.APPROVER)


def _question(
    request: Request, desk: Desk, job: ReplayJob, how: How, *, status: int = 200
) -> Response:
    edit = review(desk.editor, desk.jobs, job)
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
        items=desk.jobs.items(job.id, limit=_NAMED),
        edit=edit,
        whole=whole,
    )
