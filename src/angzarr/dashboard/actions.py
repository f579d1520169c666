"""Actions: what callers do to entries, groups, jobs and breakers, one or many at a time.

The API and the pages act by these functions. Of many entries each has its own result.
"""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from angzarr.analysis.ledger.entry import Entry
from angzarr.analysis.ledger.group import Amendment, Group
from angzarr.analysis.ledger.idempotent_requests import (
    WriteKey,
    Writes,
)
from angzarr.analysis.ledger.operator_actions import Verb, is_done, refusal
from angzarr.analysis.ledger.replay_options import ReplayOrder
from angzarr.analysis.replay.bulk_actions import CHANGED, act_on_all
from angzarr.analysis.replay.job import JobPlan, JobStatus, ReplayJob, Selection
from angzarr.analysis.replay.job_limits import is_anybody, same_person
from angzarr.analysis.replay.job_view import review
from angzarr.configuration.version import unknown_version
from angzarr.dashboard.access import Caller
from angzarr.dashboard.paging import stale
from angzarr.dashboard.problem import Problem, asking
from angzarr.dashboard.services import (
    CONFIGURATIONS,
    Services,
    breaker_of,
    detail_of,
    group_of,
    job_of,
)
from angzarr.errors import BrokerUnavailable, PayloadStoreUnavailable
from angzarr.facts.act import ActKind


def act_on_one(
    services: Services,
    entry_id: str,
    verb: Verb,
    note: str,
    *,
    by: Caller,
    revision: int | None = None,
) -> Entry:
    """Do *verb* to an entry as it was seen at *revision*; return it as it is then."""
    entry = detail_of(services, entry_id).entry
    if revision is not None and entry.revision != revision:
        raise stale("entry")
    if why := refusal(entry, verb):
        raise Problem(409, "does-not-apply", why)
    if verb is Verb.COMPENSATE:
        problem, _ = compensate(services, entry, note, by=by)
    else:
        ((_, problem, _),) = act_on_all(services.skips, verb, [entry], note=note, by=by.name)
    if problem == CHANGED:
        raise stale("entry")
    if problem:
        raise Problem(409, "does-not-apply", problem)
    return detail_of(services, entry_id).entry


def compensate(services: Services, entry: Entry, note: str, *, by: Caller) -> tuple[str, bool]:
    """Undo what *entry* set off; return why not, and whether it is only begun.

    Once it is begun the analysis worker sends what was not sent.
    """
    detail = detail_of(services, entry.id)
    try:
        return services.compensator.compensate(entry, detail.failure, by=by.name, note=note), False
    except BrokerUnavailable:
        return "", True
    except PayloadStoreUnavailable:
        return "not begun: its payload cannot be had now", False


def job_id_of(selection: Selection, plan: JobPlan, *, by: Caller, note: str, key: str) -> str:
    """The id of the job that a caller asks for under *key*."""
    return id_for(by.name, key, selection, plan, note)


def id_for(*asked: object) -> str:
    """An id that is the same for what is *asked*."""
    return hashlib.sha256(repr(asked).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def begin_job(
    services: Services,
    selection: Selection,
    plan: JobPlan,
    *,
    by: Caller,
    note: str,
    key: str | None,
) -> ReplayJob:
    """Begin a replay job; the same *key* of one caller for the same job twice is one job.

    Raises Problem 409 where it would have no entries.
    """
    check_target(services, plan.order)
    job_id = job_id_of(selection, plan, by=by, note=note, key=key) if key else secrets.token_hex(16)
    job = services.jobs.begin(
        selection,
        plan,
        by=by.name,
        note=note,
        job_id=job_id,
        approval_over=services.approval_over,
        redirects_wait=services.approves_edits,
    )
    if not job.total:
        raise Problem(409, "nothing-to-replay", job.said or "no entry fits that can be replayed")
    return job


def check_target(services: Services, order: ReplayOrder) -> None:
    """Refuse an *order* that names a place, or a version of a configuration, that is not there."""
    if why := services.replayer.targets.unknown(order):
        raise Problem(422, "no-target", why)
    check_versions(services, order)


def check_versions(services: Services, order: ReplayOrder) -> None:
    """Refuse an *order* that names a version of a configuration that is not there."""
    if order.config:
        with asking(CONFIGURATIONS):
            store = services.configurations()
            for name, version in order.config:
                if store.get(name, version) is None:
                    raise Problem(422, "no-version", str(unknown_version(name, version)))


def replay_one(
    services: Services,
    entry_id: str,
    plan: JobPlan,
    *,
    by: Caller,
    note: str,
    key: str,
    revision: int,
) -> ReplayJob:
    """Begin a job over an entry as it was seen at *revision*; the same *key* twice is one job."""
    entry, selection = detail_of(services, entry_id).entry, Selection(entry_ids=(entry_id,))
    begun = services.jobs.open_job(job_id_of(selection, plan, by=by, note=note, key=key))
    if begun is None and entry.revision != revision:
        raise stale("entry")
    return begin_job(services, selection, plan, by=by, note=note, key=key)


def steer_job(
    services: Services,
    job_id: str,
    how: str,
    *,
    by: Caller,
    revision: int | None = None,
    mark: str = "",
) -> ReplayJob:
    """Pause, resume, cancel or approve a job as it was seen at *revision*; return it as it is.

    Who approves an edit gives the *mark* of its review.
    """
    jobs = services.jobs
    steers = {"pause": jobs.pause, "resume": jobs.resume, "cancel": jobs.cancel}
    job = job_of(services, job_id)
    if how == "approve" and job.status is JobStatus.PROPOSED:
        if same_person(by.name, job.created_by):
            raise own_proposal(job, by)
        _check_edit(services, job, mark)
        revision = job.revision if revision is None else revision
    done = (steers | {"approve": jobs.approve})[how](job_id, by=by.name, revision=revision)
    if done is not None:
        return done
    if revision not in {None, job_of(services, job_id).revision}:
        raise stale("job")
    raise Problem(409, "does-not-apply", f"a job that is {job.status} cannot {how}")


def own_proposal(job: ReplayJob, caller: Caller) -> Problem:
    """The problem that *caller* may be who proposed *job*, and what helps."""
    msg = "another person must approve it: you proposed it"
    if is_anybody(job.created_by):
        msg = f"{job.created_by} proposed it, who may be anybody: cancel it, propose it by name"
    elif is_anybody(caller.name):
        msg = f"{caller.name} may be anybody: set up dashboard.tokens, approve it by name"
    return Problem(409, "own-proposal", msg)


def _check_edit(services: Services, job: ReplayJob, mark: str) -> None:
    """Refuse to let an edit be approved that is not sent, or that its approver did not see."""
    edit = review(services.editor, services.jobs, job)
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
    services: Services, fingerprint: str, amendment: Amendment, *, revision: int, by: Caller
) -> Group:
    """Change what people say of a group as it was seen at *revision*."""
    group_of(services, fingerprint)
    done = services.groups.amend(fingerprint, amendment, revision=revision, by=by.name)
    if done is None:
        raise stale("group")
    return done


def steer_breaker(services: Services, name: str, how: str, *, by: Caller) -> None:
    """Isolate or reset a breaker that is known."""
    breaker_of(services, name)
    controls = services.breakers()
    steer = {"isolate": controls.isolate, "reset": controls.reset}[how]
    with services.acts.recording(ActKind.BREAKER_CHANGED, name, by=by.name):
        steer(name, by=by.name)


#: Compensations of one request: each opens its letter and waits for the broker.
MOST_COMPENSATED: Final = 100
_GONE: Final = "there is no such entry"
_UNKNOWN: Final = "it is not known whether it was done: look at the entry"
_log = logging.getLogger(__name__)


class BulkResult(NamedTuple):
    """What became of one entry; without `problem` it is done, or `begun` and finishes by itself."""

    entry_id: str
    problem: str = ""
    begun: bool = False


class BulkRequest(NamedTuple):
    """What is to be done to all of them, and for whom."""

    verb: Verb
    note: str
    by: Caller
    dry_run: bool = False


def distinct(entry_ids: Sequence[str], verb: Verb) -> list[str]:
    """Each id once; raises Problem 422 for more than one request takes."""
    ids = list(dict.fromkeys(entry_ids))
    if len(ids) > most_for(verb, len(ids)):
        msg = f"{MOST_COMPENSATED} entries at most are compensated at once"
        raise Problem(422, "too-many", msg)
    return ids


def opened(services: Services, ids: Sequence[str]) -> list[Entry]:
    """The entries that there are of *ids*."""
    details = (services.ledger.open(one) for one in ids)
    return [detail.entry for detail in details if detail is not None]


def in_order(ids: Sequence[str], results: Sequence[BulkResult]) -> list[BulkResult]:
    """A result for each of *ids*, also where there is no such entry."""
    known = {one.entry_id: one for one in results}
    return [known.get(one, BulkResult(one, _GONE)) for one in ids]


def act_on(services: Services, entries: Sequence[Entry], asked: BulkRequest) -> list[BulkResult]:
    """Do a verb to *entries* as they were seen."""
    if asked.verb is Verb.COMPENSATE:
        return [_compensate(services, one, asked) for one in entries]
    done = act_on_all(services.skips, asked.verb, entries, note=asked.note, by=asked.by.name)
    return [BulkResult(one.entry.id, one.problem, one.begun) for one in done]


def most_for(verb: Verb, limit: int) -> int:
    """The number of entries that one request takes where *limit* are asked for."""
    return min(limit, MOST_COMPENSATED) if verb is Verb.COMPENSATE else limit


def obstacle(services: Services, entry: Entry, verb: Verb) -> str:
    """Why *verb* would not be done to *entry*, or an empty string; changes nothing."""
    why = refusal(entry, verb)
    if why or verb is not Verb.COMPENSATE:
        return why
    detail = services.ledger.open(entry.id)
    try:
        return services.compensator.problem(entry, detail.failure) if detail else _GONE
    except PayloadStoreUnavailable:
        return "its payload cannot be had now"


def act_once(
    services: Services, find: Callable[[], list[Entry]], asked: BulkRequest, choice: Choice
) -> list[BulkResult]:
    """Do a verb to what *find* returns, or go on with what the same request chose before."""
    if choice.kept is not None:
        return _go_on(services, asked, choice)
    entries = find()
    choice.make(entries)
    return act_on(services, entries, asked)


def _go_on(services: Services, asked: BulkRequest, choice: Choice) -> list[BulkResult]:
    """Go on with what was chosen before: what is done is done, what has changed is left alone."""
    results: dict[str, BulkResult] = {}
    unchanged: list[Entry] = []
    for entry_id, revision in choice.kept or ():
        detail = services.ledger.open(entry_id)
        if detail is None:
            results[entry_id] = BulkResult(entry_id, _GONE)
        elif detail.entry.revision == revision:
            unchanged.append(detail.entry)
        else:
            done = is_done(detail.entry, asked.verb)
            results[entry_id] = BulkResult(entry_id, "" if done else CHANGED)
    results |= {one.entry_id: one for one in act_on(services, unchanged, asked)}
    return [results[entry_id] for entry_id, _ in choice.kept or ()]


def _compensate(services: Services, entry: Entry, asked: BulkRequest) -> BulkResult:
    """Compensate one of many: the others have their results whatever becomes of it."""
    try:
        problem, begun = compensate(services, entry, asked.note, by=asked.by)
    except Problem as error:
        return BulkResult(entry.id, error.detail)
    except Exception:  # noqa: BLE001 - the others keep their results
        _log.exception("compensation_failed: of entry %s", entry.id)
        return BulkResult(entry.id, _UNKNOWN)
    return BulkResult(entry.id, problem, begun)


class ChosenEntry(NamedTuple):
    """An entry, and its revision when it was chosen."""

    entry_id: str
    revision: int


@dataclass(slots=True)
class Choice:
    """What a request acts on; `keep` remembers it before anything is done."""

    keep: Callable[[bytes], bool] = lambda _: True
    kept: tuple[ChosenEntry, ...] | None = None

    @classmethod
    def of(cls, writes: Writes, write: WriteKey, token: str, kept: bytes | None) -> Choice:
        """The choice of the request that *token* works on."""
        seen = None if kept is None else tuple(ChosenEntry(*one) for one in json.loads(kept))
        return cls(lambda choice: writes.choose(write, token, choice), seen)

    def make(self, entries: Sequence[Entry]) -> None:
        """Remember *entries*; raises Problem 409 where another one works on the request."""
        self.kept = tuple(ChosenEntry(one.id, one.revision) for one in entries)
        if not self.keep(json.dumps(self.kept).encode()):
            msg = "another one works on this request by now"
            raise Problem(409, "still-running", msg, headers={"Retry-After": "5"})
