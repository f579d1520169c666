"""Replay jobs as JSON, for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from angzarr.analysis.ledger.entry import HistoryLine
from angzarr.analysis.replay.edit_review import EditReview, review_json
from angzarr.analysis.replay.job import JobItem, JobPage, ReplayJob

#: How the engine keeps time is nobody else's business.
_PRIVATE: Final = ("tokens", "filled_at", "recent", "stage_sent", "stage_answered")


def job_json(job: ReplayJob) -> dict[str, Any]:
    """Return *job* as a JSON object."""
    fields = {name: value for name, value in asdict(job).items() if name not in _PRIVATE}
    return fields | {"in_flight": job.out, "left": job.left}


def page_json(page: JobPage) -> dict[str, Any]:
    """Return *page* as a JSON object; `next` is the value for --after, or null."""
    return {"jobs": [job_json(job) for job in page.jobs], "next": page.next or None}


def item_json(item: JobItem) -> dict[str, Any]:
    """Return one entry of a job as a JSON object."""
    begun = item.round > 0
    return {
        "position": item.position,
        "id": item.entry_id,
        "state": item.state,
        "replay": item.replay if begun else None,
        "round": item.round if begun else None,
        "reason": item.reason or None,
    }


def detail_json(
    job: ReplayJob,
    history: Sequence[HistoryLine],
    refused: Sequence[JobItem],
    edit: EditReview | None,
) -> dict[str, Any]:
    """Return everything about a job as a JSON object."""
    lines = [
        {"at": line.at, "who": line.who, "what": line.what, "detail": line.detail}
        for line in history
    ]
    return job_json(job) | {
        "history": lines,
        "edit_review": review_json(edit),
        "refused_entries": [{"id": one.entry_id, "reason": one.reason} for one in refused],
    }
