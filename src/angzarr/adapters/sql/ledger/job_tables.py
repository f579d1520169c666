"""The tables of replay jobs, in the ledger's database (spec A4)."""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    text,
)

from angzarr.adapters.sql.ledger.tables import METADATA, a_name, a_number, a_text, a_time

_ENDED: Final = text("ended_at IS NOT NULL")

#: One row a job; the columns are the fields of `ReplayJob` by name, and who works on it.
replay_jobs = Table(
    "replay_jobs",
    METADATA,
    Column("id", String(64), primary_key=True),
    # JSON.
    a_text("selection"),
    a_text("plan"),
    a_text("handlers"),
    # The fingerprint of the selection, or empty.
    a_name("fingerprint"),
    a_name("status"),
    a_text("said"),
    a_text("created_by"),
    a_time("created_at", nullable=False),
    a_text("note"),
    a_number("total"),
    a_number("sent"),
    a_number("handled"),
    a_number("failed"),
    a_number("refused"),
    a_number("unanswered"),
    a_number("round"),
    a_number("stage"),
    a_number("stage_sent"),
    a_number("stage_answered"),
    a_text("recent"),
    Column("tokens", Float, nullable=False),
    a_time("filled_at"),
    a_text("approved_by"),
    # NULL: none, also in rows of before there were edits.
    Column("edit", String(64)),
    a_time("ended_at"),
    a_number("revision"),
    # Whoever works on it, and until when nobody else may.
    Column("engine", String(64)),
    a_time("leased_until"),
    Index("replay_jobs_by_time", "created_at", "id"),
    Index("replay_jobs_by_status", "status", "created_at", "id"),
    Index("replay_jobs_ended", "ended_at", postgresql_where=_ENDED, sqlite_where=_ENDED),
)

#: The entries of each job, fixed when it begins. A removed entry keeps its row: it was chosen.
replay_job_items = Table(
    "replay_job_items",
    METADATA,
    Column("job_id", String(64), nullable=False),
    a_number("position"),
    Column("entry_id", String(64), nullable=False),
    a_name("chosen_as"),
    a_name("state"),
    a_number("replay"),
    a_number("round"),
    a_text("reason"),
    PrimaryKeyConstraint("job_id", "position"),
    Index("replay_job_items_by_state", "job_id", "state", "position"),
    Index("replay_job_items_by_entry", "entry_id"),
)

replay_job_history = Table(
    "replay_job_history",
    METADATA,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("job_id", String(64), nullable=False, index=True),
    a_time("at", nullable=False),
    a_text("who"),
    a_name("what"),
    a_text("detail"),
)

#: What a replay was to be, where it was not the letter's message again.
replay_orders = Table(
    "replay_orders",
    METADATA,
    Column("entry_id", ForeignKey("ledger_entries.id", ondelete="CASCADE"), nullable=False),
    a_number("replay"),
    a_text("to_queue"),
    a_text("to_handler"),
    # The edited letter and the one before in their binary wire form; NULL: it was not edited.
    Column("letter", LargeBinary),
    Column("before", LargeBinary),
    a_text("content_type"),
    a_text("said"),
    # How the expected sequence travels; NULL: as it is, also in rows of older releases.
    Column("sequence", Text),
    PrimaryKeyConstraint("entry_id", "replay"),
)

#: The edit that a job carries, written once with the job; it goes with its entry.
replay_job_edits = Table(
    "replay_job_edits",
    METADATA,
    Column("job_id", String(64), primary_key=True),
    Column("entry_id", ForeignKey("ledger_entries.id", ondelete="CASCADE"), nullable=False),
    a_number("replays"),
    a_name("letter_id"),
    Column("needs_approval", Boolean, nullable=False),
    # Both letters in their binary wire form.
    Column("letter", LargeBinary, nullable=False),
    Column("before", LargeBinary),
    a_text("content_type"),
    a_text("said"),
    Index("replay_job_edits_by_entry", "entry_id"),
)
