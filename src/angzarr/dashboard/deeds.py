"""Deeds: what callers do to entries, groups and jobs; the API and the pages do it by these."""

from __future__ import annotations

import hashlib
import secrets

from angzarr.analysis.ledger.entry import Entry
from angzarr.analysis.ledger.group import Amendment, Group
from angzarr.analysis.ledger.operator_actions import Verb, refusal
from angzarr.analysis.ledger.replay_options import ReplayOrder
from angzarr.analysis.replay.bulk_actions import CHANGED, act_on_all
from angzarr.analysis.replay.job import JobPlan, JobStatus, ReplayJob, Selection
from angzarr.analysis.replay.job_limits import is_anybody, same_person
from angzarr.analysis.replay.job_view import review
from angzarr.dashboard.access import Caller
from angzarr.dashboard.desk import Desk
from angzarr.dashboard.look import breaker_of, detail_of, group_of, job_of
from angzarr.dashboard.problem import Problem
from angzarr.dashboard.revision import stale
from angzarr.errors import BrokerUnavailable, PayloadStoreUnavailable


def act_on_one(
    desk: Desk, entry_id: str, verb: Verb, note: str, *, by: Caller, revision: int | None = None
) -> Entry:
    """Do *verb* to an entry as it was seen at *revision*; return it as it is then."""
    entry = detail_of(desk, entry_id).entry
    if revision is not None and entry.revision != revision:
        raise stale("entry")
    if why := refusal(entry, verb):
        raise Problem(409, "does-not-apply", why)
    if verb is Verb.COMPENSATE:
        problem, _ = compensate(desk, entry, note, by=by)
    else:
        ((_, problem, _),) = act_on_all(desk.skips, verb, [entry], note=note, by=by.name)
    if problem == CHANGED:
        raise stale("entry")
    if problem:
        raise Problem(409, "does-not-apply", problem)
    return detail_of(desk, entry_id).entry


def compensate(desk: Desk, entry: Entry, note: str, *, by: Caller) -> tuple[str, bool]:
    """Undo what *entry* set off; return why not, and whether it is only begun.

    Once it is begun the analysis worker sends what was not sent.
    """
    detail = detail_of(desk, entry.id)
    try:
        return desk.compensator.compensate(entry, detail.failure, by=by.name, note=note), False
    except BrokerUnavailable:
        return "", True
    except PayloadStoreUnavailable:
        return "not begun: its payload cannot be had now", False


def job_id_of(selection: Selection, plan: JobPlan, *, by: Caller, note: str, key: str) -> str:
    """Return the id of the job that a caller asks for under *key*."""
    return named(by.name, key, selection, plan, note)


def named(*asked: object) -> str:
    """Return an id that is the same for what is *asked*."""
    return hashlib.sha256(repr(asked).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def begin_job(
    desk: Desk, selection: Selection, plan: JobPlan, *, by: Caller, note: str, key: str | None
) -> ReplayJob:
    """Begin a replay job; the same *key* of one caller for the same job twice is one job.

    Raises Problem 409 where it would have no entries.
    """
    check_target(desk, plan.order)
    job_id = job_id_of(selection, plan, by=by, note=note, key=key) if key else secrets.token_hex(16)
    job = desk.jobs.begin(
        selection,
        plan,
        by=by.name,
        note=note,
        job_id=job_id,
        approval_over=desk.approval_over,
        redirects_wait=desk.approves_edits,
    )
    if not job.total:
        raise Problem(409, "nothing-to-replay", job.said or "no entry fits that can be replayed")
    return job


def check_target(desk: Desk, order: ReplayOrder) -> None:
    """Refuse an *order* that sends a replay where nobody is."""
    if why := desk.replayer.targets.unknown(order):
        raise Problem(422, "no-target", why)


def replay_one(
    desk: Desk, entry_id: str, plan: JobPlan, *, by: Caller, note: str, key: str, revision: int
) -> ReplayJob:
    """Begin a job over an entry as it was seen at *revision*; the same *key* twice is one job."""
    entry, selection = detail_of(desk, entry_id).entry, Selection(entry_ids=(entry_id,))
    begun = desk.jobs.open_job(job_id_of(selection, plan, by=by, note=note, key=key))
    if begun is None and entry.revision != revision:
        raise stale("entry")
    return begin_job(desk, selection, plan, by=by, note=note, key=key)


def steer_job(
    desk: Desk, job_id: str, how: str, *, by: Caller, revision: int | None = None, mark: str = ""
) -> ReplayJob:
    """Pause, resume, cancel or approve a job as it was seen at *revision*; return it as it is.

    Who approves an edit gives the *mark* of its review.
    """
    jobs = desk.jobs
    steers = {"pause": jobs.pause, "resume": jobs.resume, "cancel": jobs.cancel}
    job = job_of(desk, job_id)
    if how == "approve" and job.status is JobStatus.PROPOSED:
        if same_person(by.name, job.created_by):
            raise own_proposal(job, by)
        _check_edit(desk, job, mark)
        revision = job.revision if revision is None else revision
    done = (steers | {"approve": jobs.approve})[how](job_id, by=by.name, revision=revision)
    if done is not None:
        return done
    if revision not in {None, job_of(desk, job_id).revision}:
        raise stale("job")
    raise Problem(409, "does-not-apply", f"a job that is {job.status} cannot {how}")


def own_proposal(job: ReplayJob, caller: Caller) -> Problem:
    """Return that *caller* may be who proposed *job*, and what helps."""
    msg = "another person must approve it: you proposed it"
    if is_anybody(job.created_by):
        msg = f"{job.created_by} proposed it, who may be anybody: cancel it, propose it by name"
    elif is_anybody(caller.name):
        msg = f"{caller.name} may be anybody: set up dashboard.tokens, approve it by name"
    return Problem(409, "own-proposal", msg)


def _check_edit(desk: Desk, job: ReplayJob, mark: str) -> None:
    """Refuse to let an edit be approved that is not sent, or that its approver did not see."""
    edit = review(desk.editor, desk.jobs, job)
    if edit is None:
        return
    if edit.passes:
        raise Problem(503, "unavailable", edit.problem, headers={"Retry-After": "5"})
    if edit.problem:
        raise Problem(409, "outdated-edit", edit.problem)
    if not mark:
        msg = "it carries an edit: send If-Match with the ETag that came with the job's whole edit"
        raise Problem(428, "edit-not-seen", msg)
    if mark != edit.mark:
        raise stale("edit")


def amend_group(
    desk: Desk, fingerprint: str, amendment: Amendment, *, revision: int, by: Caller
) -> Group:
    """Change what people say of a group as it was seen at *revision*."""
    group_of(desk, fingerprint)
    done = desk.groups.amend(fingerprint, amendment, revision=revision, by=by.name)
    if done is None:
        raise stale("group")
    return done


def steer_breaker(desk: Desk, name: str, how: str, *, by: Caller) -> None:
    """Isolate or reset a breaker that is known."""
    breaker_of(desk, name)
    controls = desk.breakers()
    steer = {"isolate": controls.isolate, "reset": controls.reset}[how]
    steer(name, by=by.name)
