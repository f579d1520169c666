"""Look: one thing by its name, or a Problem that says there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from angzarr.analysis.classification.classify import explanation_json
from angzarr.analysis.classification.evidence_text import evidence_items
from angzarr.analysis.ledger.entry import EntryDetail
from angzarr.analysis.ledger.group import Group
from angzarr.analysis.ledger.plan_filing import as_stored
from angzarr.analysis.replay.job import ItemState, JobItem, ReplayJob
from angzarr.dashboard.desk import Desk
from angzarr.dashboard.paging import position_after
from angzarr.dashboard.problem import not_found
from angzarr.dead_letters.letter import DeadLetter
from angzarr.resilience.breaker import BreakerState


def detail_of(desk: Desk, entry_id: str) -> EntryDetail:
    """Return an entry with its letter and history."""
    detail = desk.ledger.open(entry_id)
    if detail is None:
        raise not_found("entry")
    return detail


def protection_of(desk: Desk, detail: EntryDetail) -> Mapping[str, str]:
    """Return what is known of who wrote an entry's letter and who can open it."""
    failure = detail.failure
    return dict(desk.told(failure)) if isinstance(failure, DeadLetter) else {}


def explanation_of(desk: Desk, detail: EntryDetail) -> dict[str, Any]:
    """Return how an entry would be classified now, and why; asks whoever the worker would ask."""
    (evidence,) = desk.gathering.gather([as_stored(detail.entry, detail.failure)])
    return explanation_json(
        detail.entry, desk.classifier.explain(evidence), evidence_items(evidence)
    )


def group_of(desk: Desk, fingerprint: str) -> Group:
    """Return a group."""
    group = desk.groups.open_group(fingerprint)
    if group is None:
        raise not_found("group")
    return group


def job_of(desk: Desk, job_id: str) -> ReplayJob:
    """Return a replay job."""
    job = desk.jobs.open_job(job_id)
    if job is None:
        raise not_found("job")
    return job


def item_page(
    desk: Desk, job_id: str, states: Sequence[ItemState], after: str, limit: int
) -> tuple[list[JobItem], str]:
    """Return entries of a job behind a cursor as callers see it, and the next cursor, or nothing.

    The position says where a page ends: entries never leave a job nor change places in it.
    """
    behind = position_after(after)
    found = desk.jobs.items(job_id, states, limit=limit + 1, after=behind)
    return found[:limit], str(found[limit - 1].position) if found[limit:] else ""


def breaker_of(desk: Desk, name: str) -> BreakerState:
    """Return a breaker."""
    state = desk.breakers().states().get(name)
    if state is None:
        raise not_found("breaker")
    return state
