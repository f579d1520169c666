"""Rows of the tables of replay jobs to and from the values of `angzarr.analysis`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, fields
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, Row, insert, select, update

from angzarr.adapters.sql.job_tables import replay_job_history, replay_job_items, replay_jobs
from angzarr.analysis import job_story
from angzarr.analysis.entry import FailureClass, HistoryLine, Status
from angzarr.analysis.job import ItemState, JobItem, JobPlan, JobStatus, ReplayJob, Selection
from angzarr.analysis.ledger import EntryFilter
from angzarr.analysis.newer_words import is_known, read_word, say_newer
from angzarr.analysis.replay_order import Expectation
from angzarr.events.headers import time_of

_FIELDS: Final = tuple(field.name for field in fields(ReplayJob))
#: Fields kept as JSON.
_PLAN: Final = frozenset(field.name for field in fields(JobPlan))
_WANTED: Final = frozenset(field.name for field in fields(EntryFilter))
_JSON: Final = ("selection", "plan", "handlers")
#: What workers of before do not know: left out of a plan where it asks for nothing.
_NEW: Final = {"original": False, "sequence": Expectation.AS_IS}
_TIMES: Final = ("since", "until")


def job_row(job: ReplayJob) -> dict[str, Any]:
    """Return *job* as a row of replay_jobs."""
    row = {name: getattr(job, name) for name in _FIELDS if name not in _JSON}
    row |= {
        "selection": json.dumps(asdict(job.selection), default=datetime.isoformat),
        "plan": json.dumps(_plan(job.plan)),
        "handlers": json.dumps(job.handlers),
        "fingerprint": job.group,
    }
    return row


def _plan(plan: JobPlan) -> dict[str, Any]:
    """Return *plan* as JSON; workers of before can read one that asks for nothing new."""
    return {
        name: one for name, one in asdict(plan).items() if name not in _NEW or one != _NEW[name]
    }


def job_from(row: Row[Any]) -> ReplayJob:
    """Return a row of replay_jobs as a job."""
    values = {name: row._mapping[name] for name in _FIELDS}  # noqa: SLF001 - SQLAlchemy's public name for it
    values["status"] = read_word(JobStatus, values["status"])
    values["selection"] = _selection(json.loads(values["selection"]))
    values["edit"] = values["edit"] or ""
    values["handlers"] = tuple(json.loads(values["handlers"]))
    plan = {name: said for name, said in json.loads(values["plan"]).items() if name in _PLAN}
    plan["sequence"] = read_word(Expectation, plan.get("sequence", Expectation.AS_IS))
    values["plan"] = JobPlan(**plan | {"stages": tuple(plan["stages"])})
    return ReplayJob(**values)


def is_understood(row: Row[Any]) -> bool:
    """Tell whether this release knows all that the plan of a job asks for; else say so once."""
    plan = json.loads(row.plan)
    if newer := set(plan) - _PLAN:
        say_newer(f"a replay job whose plan says {', '.join(sorted(newer))}")
    return not newer and is_known(read_word(Expectation, plan.get("sequence", Expectation.AS_IS)))


def item_from(row: Row[Any]) -> JobItem:
    """Return a row of replay_job_items as an item."""
    return JobItem(
        position=row.position,
        entry_id=row.entry_id,
        state=read_word(ItemState, row.state),
        replay=row.replay,
        round=row.round,
        reason=row.reason,
    )


def lock_job(connection: Connection, job_id: str) -> Row[Any] | None:
    """Return the row of a job, locked until the transaction ends."""
    wanted = select(replay_jobs).where(replay_jobs.c.id == job_id)
    return connection.execute(wanted.with_for_update()).one_or_none()


def save_job(
    connection: Connection, before: ReplayJob, after: ReplayJob, now: datetime, by: str
) -> ReplayJob:
    """Write a locked job and what its history says of the change; return it as it is then."""
    if after == before:
        return before
    # Only what changed: a newer release may have written more than this one reads.
    was = job_row(before)
    row = {name: value for name, value in job_row(after).items() if value != was[name]}
    row["revision"] = before.revision + 1
    connection.execute(update(replay_jobs).where(replay_jobs.c.id == after.id).values(**row))
    tell(connection, after.id, job_story.lines(before, after, now, by))
    return job_from(
        connection.execute(select(replay_jobs).where(replay_jobs.c.id == after.id)).one()
    )


def tell(connection: Connection, job_id: str, lines: Sequence[HistoryLine]) -> None:
    """Add *lines* to the history of a job."""
    rows = [
        {"job_id": job_id, "at": one.at, "who": one.who, "what": one.what, "detail": one.detail}
        for one in lines
    ]
    if rows:
        connection.execute(insert(replay_job_history), rows)


def update_items(connection: Connection, job_id: str, items: Sequence[JobItem]) -> None:
    """Write what changed of *items* of a job."""
    for one in items:
        this = (replay_job_items.c.job_id == job_id) & (replay_job_items.c.position == one.position)
        values = {
            "state": one.state.value,
            "replay": one.replay,
            "round": one.round,
            "reason": one.reason,
        }
        connection.execute(update(replay_job_items).where(this).values(**values))


def _selection(kept: dict[str, Any]) -> Selection:
    wanted = {name: value for name, value in kept["wanted"].items() if name in _WANTED}
    wanted |= {name: time_of(wanted[name]) for name in _TIMES}
    if wanted["failure_class"] is not None:
        wanted["failure_class"] = read_word(FailureClass, wanted["failure_class"])
    return Selection(
        wanted=EntryFilter(**wanted),
        status=read_word(Status, kept["status"]) if kept["status"] else None,
        entry_ids=tuple(kept["entry_ids"]),
        limit=kept["limit"],
    )
