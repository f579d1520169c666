"""Replay jobs, their orders and their edits as rows, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, Row, func, insert, select, update

from angzarr.adapters.sql.ledger.fact_outbox import put_facts
from angzarr.adapters.sql.ledger.letter_holds import (
    LetterHold,
    holds_of,
    known_hold,
    pass_edits,
    release,
)
from angzarr.adapters.sql.ledger.schema import (
    replay_job_edits,
    replay_job_history,
    replay_job_items,
    replay_jobs,
    replay_orders,
)
from angzarr.adapters.sql.ledger.tables import line_row
from angzarr.analysis.ledger.act_facts import facts_of_job
from angzarr.analysis.ledger.entry import (
    Change,
    Entry,
    FailureClass,
    HistoryLine,
    Status,
    is_known,
    read_word,
    say_newer,
)
from angzarr.analysis.ledger.ledger import EntryFilter
from angzarr.analysis.ledger.replay_options import AS_IT_IS, Expectation, ReplayOrder
from angzarr.analysis.replay import job_progress
from angzarr.analysis.replay.job import (
    ItemState,
    JobEdit,
    JobItem,
    JobPlan,
    JobStatus,
    ReplayJob,
    Selection,
    digest_of_kept,
)
from angzarr.dead_letters.bounds import WIDEST
from angzarr.dead_letters.codec import Form, decode, encode
from angzarr.dead_letters.holding_queue import payload_hold
from angzarr.dead_letters.letter import DeadLetter
from angzarr.events.headers import time_of
from angzarr.facts.act import act_origin


def save_orders(connection: Connection, changes: Sequence[Change]) -> None:
    """Keep the orders of replays that begin, and what their edits still need."""
    orders = [(one.entry, one.order) for one in changes if one.order]
    if orders:
        edited = [entry.id for entry, order in orders if order.before is not None]
        known = holds_of(connection, edited) if edited else []
        passed = pass_edits(connection, edited)
        rows = [_row(entry, order, known) for entry, order in orders]
        connection.execute(insert(replay_orders), rows)
        release(connection, passed)


def read_orders(
    connection: Connection, replays: Mapping[str, int]
) -> dict[str, tuple[ReplayOrder, DeadLetter | None]]:
    """By entry the order of its last replay, and the letter before the newest edit.

    *replays* is the number of the last replay, by entry.
    """
    found: dict[str, list[Row[Any]]] = {entry_id: [] for entry_id in replays}
    rows = replay_orders.c
    wanted = select(replay_orders).where(rows.entry_id.in_(sorted(replays)))
    for row in connection.execute(wanted.order_by(rows.replay.desc())):
        found[row.entry_id].append(row)
    return {one: _last_of(found[one], replay) for one, replay in replays.items()}


def order_sizes(connection: Connection, ids: Sequence[str]) -> dict[str, int]:
    """By entry how many bytes the letters of its orders are, where it has orders."""
    rows = replay_orders.c
    both = (func.coalesce(func.length(one), 0) for one in (rows.letter, rows.before))
    wanted = select(rows.entry_id, func.sum(sum(both))).group_by(rows.entry_id)
    found = connection.execute(wanted.where(rows.entry_id.in_(ids)))
    return {entry_id: int(size) for entry_id, size in found}


def _last_of(rows: Sequence[Row[Any]], replay: int) -> tuple[ReplayOrder, DeadLetter | None]:
    last = _order(rows[0]) if rows and rows[0].replay == replay else AS_IT_IS
    edited = next((row for row in rows if row.before is not None), None)
    return last, edited and _order(edited).before


def _order(row: Row[Any]) -> ReplayOrder:
    return ReplayOrder(
        to_queue=row.to_queue,
        to_handler=row.to_handler,
        sequence=read_word(Expectation, row.sequence or Expectation.AS_IS),
        config=_pairs(json.loads(row.config or "[]")),
        **letters_of(row),
    )


def _row(entry: Entry, order: ReplayOrder, known: Sequence[LetterHold]) -> dict[str, Any]:
    hold = known_hold(known, entry.id, payload_hold(order.before)) if order.before else None
    return letters_row(order) | {
        "payload_uri": hold and hold.uri,
        "payload_holder": hold and hold.holder,
        "entry_id": entry.id,
        "replay": entry.replays,
        "to_queue": order.to_queue,
        "to_handler": order.to_handler,
        "sequence": None if order.sequence is Expectation.AS_IS else order.sequence.value,
        "config": json.dumps(order.config) if order.config else None,
    }


def _pairs(written: Sequence[Sequence[str]]) -> tuple[tuple[str, str], ...]:
    """Versions by configuration, as JSON has them."""
    return tuple((name, version) for name, version in written)


def letters_row(order: ReplayOrder) -> dict[str, Any]:
    """The letters of *order*, and what was changed, as columns."""
    letter, content_type = _written(order.letter)
    before, _ = _written(order.before)
    return {"letter": letter, "before": before, "content_type": content_type, "said": order.said}


def letters_of(row: Row[Any]) -> dict[str, Any]:
    """Such columns as fields of a `ReplayOrder`."""
    return {
        "letter": _read(row.letter, row.content_type),
        "before": _read(row.before, row.content_type),
        "said": row.said,
    }


def _written(letter: DeadLetter | None) -> tuple[bytes | None, str]:
    return (None, "") if letter is None else encode(letter, Form.BINARY)


def _read(body: bytes | None, content_type: str) -> DeadLetter | None:
    return None if body is None else decode(bytes(body), content_type, WIDEST)


_FIELDS: Final = tuple(field.name for field in fields(ReplayJob))
#: Fields kept as JSON.
_PLAN: Final = frozenset(field.name for field in fields(JobPlan))
_WANTED: Final = frozenset(field.name for field in fields(EntryFilter))
_JSON: Final = ("selection", "plan", "handlers")
#: What workers of before do not know: left out of a plan where it asks for nothing.
_NEW: Final = {"original": False, "sequence": Expectation.AS_IS, "config": ()}
_TIMES: Final = ("since", "until")


def job_row(job: ReplayJob) -> dict[str, Any]:
    """*job* as a row of replay_jobs."""
    row = {name: getattr(job, name) for name in _FIELDS if name not in _JSON}
    row |= {
        "selection": json.dumps(asdict(job.selection), default=datetime.isoformat),
        "plan": json.dumps(_plan(job.plan)),
        "handlers": json.dumps(job.handlers),
        "fingerprint": job.group,
    }
    return row


def _plan(plan: JobPlan) -> dict[str, Any]:
    """*plan* as JSON; workers of before can read one that asks for nothing new."""
    return {
        name: one for name, one in asdict(plan).items() if name not in _NEW or one != _NEW[name]
    }


def job_from(row: Row[Any]) -> ReplayJob:
    """A row of replay_jobs as a job."""
    values = {name: row._mapping[name] for name in _FIELDS}  # noqa: SLF001 - SQLAlchemy's public name for it
    values["status"] = read_word(JobStatus, values["status"])
    values["selection"] = _selection(json.loads(values["selection"]))
    values["edit"] = values["edit"] or ""
    values["handlers"] = tuple(json.loads(values["handlers"]))
    plan = {name: said for name, said in json.loads(values["plan"]).items() if name in _PLAN}
    plan["sequence"] = read_word(Expectation, plan.get("sequence", Expectation.AS_IS))
    plan["config"] = _pairs(plan.get("config", ()))
    values["plan"] = JobPlan(**plan | {"stages": tuple(plan["stages"])})
    return ReplayJob(**values)


def is_understood(row: Row[Any]) -> bool:
    """True if this release knows all that the plan of a job asks for; else say so once."""
    plan = json.loads(row.plan)
    if newer := set(plan) - _PLAN:
        say_newer(f"a replay job whose plan says {', '.join(sorted(newer))}")
    return not newer and is_known(read_word(Expectation, plan.get("sequence", Expectation.AS_IS)))


def item_from(row: Row[Any]) -> JobItem:
    """A row of replay_job_items as an item."""
    return JobItem(
        position=row.position,
        entry_id=row.entry_id,
        state=read_word(ItemState, row.state),
        replay=row.replay,
        round=row.round,
        reason=row.reason,
    )


def lock_job(connection: Connection, job_id: str) -> Row[Any] | None:
    """The row of a job, locked until the transaction ends."""
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
    told = job_progress.lines(before, after, now, by)
    tell(connection, replace(after, revision=row["revision"]), told)
    return job_from(
        connection.execute(select(replay_jobs).where(replay_jobs.c.id == after.id)).one()
    )


def tell(connection: Connection, job: ReplayJob, lines: Sequence[HistoryLine]) -> None:
    """Add *lines* to the history of *job*, which they made what it is, and to the facts."""
    rows = [{"job_id": job.id, **line_row(one)} for one in lines]
    if rows:
        connection.execute(insert(replay_job_history), rows)
        put_facts(connection, facts_of_job(job, lines, act_origin()))


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


def save_edit(connection: Connection, job_id: str, edit: JobEdit) -> None:
    """Keep the edit of a job that begins."""
    row = letters_row(edit.order) | {
        "job_id": job_id,
        "entry_id": edit.entry_id,
        "replays": edit.replays,
        "letter_id": edit.letter_id,
        "needs_approval": edit.needs_approval,
    }
    connection.execute(insert(replay_job_edits).values(**row))


def read_edit(connection: Connection, job_id: str) -> JobEdit | None:
    """The edit of a job, if it has one and its entry is still there."""
    wanted = select(replay_job_edits).where(replay_job_edits.c.job_id == job_id)
    row = connection.execute(wanted).one_or_none()
    if row is None:
        return None
    return JobEdit(
        entry_id=row.entry_id,
        replays=row.replays,
        letter_id=row.letter_id,
        needs_approval=row.needs_approval,
        order=ReplayOrder(**letters_of(row)),
    )


def sent_edit(connection: Connection, entry_id: str, replay: int) -> str:
    """`JobEdit.sha256` of the edit that a replay carried, or an empty string."""
    rows = replay_orders.c
    this = (rows.entry_id == entry_id, rows.replay == replay)
    row = connection.execute(select(rows.before, rows.letter).where(*this)).one_or_none()
    return digest_of_kept(*(one and bytes(one) for one in row)) if row is not None else ""
