"""Replay jobs: what people began, the entries of each, and what happened to it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

_COUNTS = ("total", "sent", "handled", "failed", "refused", "unanswered")
_STAGE = ("round", "stage", "stage_sent", "stage_answered")
#: Apart from their tables: that one is there already does not say that its indexes are.
_INDEXES = (
    ("replay_jobs_by_time", "replay_jobs", ["created_at", "id"]),
    ("replay_jobs_by_status", "replay_jobs", ["status", "created_at", "id"]),
    ("replay_job_items_by_state", "replay_job_items", ["job_id", "state", "position"]),
    ("replay_job_items_by_entry", "replay_job_items", ["entry_id"]),
    ("ix_replay_job_history_job_id", "replay_job_history", ["job_id"]),
)


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "replay_jobs",
        sa.Column("id", sa.String(64), primary_key=True),
        *map(_text, ("selection", "plan", "handlers", "fingerprint", "status", "said")),
        _text("created_by"),
        _time("created_at", nullable=False),
        _text("note"),
        *map(_number, (*_COUNTS, *_STAGE)),
        _text("recent"),
        sa.Column("tokens", sa.Float, nullable=False),
        _time("filled_at"),
        _text("approved_by"),
        _time("ended_at"),
        _number("revision"),
        sa.Column("engine", sa.String(64)),
        _time("leased_until"),
        if_not_exists=True,
    )
    op.create_table(
        "replay_job_items",
        sa.Column("job_id", sa.String(64), nullable=False),
        _number("position"),
        sa.Column("entry_id", sa.String(64), nullable=False),
        *map(_text, ("chosen_as", "state")),
        *map(_number, ("replay", "round")),
        _text("reason"),
        sa.PrimaryKeyConstraint("job_id", "position"),
        if_not_exists=True,
    )
    op.create_table(
        "replay_job_history",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("job_id", sa.String(64), nullable=False),
        _time("at", nullable=False),
        *map(_text, ("who", "what", "detail")),
        if_not_exists=True,
    )
    for name, table, columns in _INDEXES:
        op.create_index(name, table, columns, if_not_exists=True)


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=False)


def _number(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.Integer, nullable=False)


def _time(name: str, *, nullable: bool = True) -> sa.Column[object]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=nullable)
