"""Edits of replay jobs: rows of replay_job_edits, each written once with its job."""

from __future__ import annotations

from sqlalchemy import Connection, insert, select

from angzarr.adapters.sql.job_tables import replay_job_edits, replay_orders
from angzarr.adapters.sql.order_rows import letters_of, letters_row
from angzarr.analysis.job_edit import JobEdit, digest_of_kept
from angzarr.analysis.replay_order import ReplayOrder


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
    """Return the edit of a job, if it has one and its entry is still there."""
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
    """Return `JobEdit.sha256` of the edit that a replay carried, or an empty string."""
    rows = replay_orders.c
    this = (rows.entry_id == entry_id, rows.replay == replay)
    row = connection.execute(select(rows.before, rows.letter).where(*this)).one_or_none()
    return digest_of_kept(*(one and bytes(one) for one in row)) if row is not None else ""
