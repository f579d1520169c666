"""The tables of replay jobs, in the ledger's database (spec A4)."""

from __future__ import annotations

from sqlalchemy import (
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    String,
    Table,
)

from angzarr.adapters.sql.ledger_tables import METADATA, Name, UtcTime, ValidText


def _number(column: str) -> Column[int]:
    return Column(column, Integer, nullable=False)


def _text(column: str) -> Column[str]:
    return Column(column, ValidText, nullable=False)


#: One row a job; the columns are the fields of `ReplayJob` by name, and who works on it.
replay_jobs = Table(
    "replay_jobs",
    METADATA,
    Column("id", String(64), primary_key=True),
    # JSON.
    _text("selection"),
    _text("plan"),
    _text("handlers"),
    # The fingerprint of the selection, or empty.
    Column("fingerprint", Name, nullable=False),
    Column("status", Name, nullable=False),
    _text("said"),
    _text("created_by"),
    Column("created_at", UtcTime, nullable=False),
    _text("note"),
    _number("total"),
    _number("sent"),
    _number("handled"),
    _number("failed"),
    _number("refused"),
    _number("unanswered"),
    _number("round"),
    _number("stage"),
    _number("stage_sent"),
    _number("stage_answered"),
    _text("recent"),
    Column("tokens", Float, nullable=False),
    Column("filled_at", UtcTime),
    _text("approved_by"),
    Column("ended_at", UtcTime),
    _number("revision"),
    # Whoever works on it, and until when nobody else may.
    Column("engine", String(64)),
    Column("leased_until", UtcTime),
    Index("replay_jobs_by_time", "created_at", "id"),
    Index("replay_jobs_by_status", "status", "created_at", "id"),
)

#: The entries of each job, fixed when it begins. A removed entry keeps its row: it was chosen.
replay_job_items = Table(
    "replay_job_items",
    METADATA,
    Column("job_id", String(64), nullable=False),
    _number("position"),
    Column("entry_id", String(64), nullable=False),
    Column("chosen_as", Name, nullable=False),
    Column("state", Name, nullable=False),
    _number("replay"),
    _number("round"),
    _text("reason"),
    PrimaryKeyConstraint("job_id", "position"),
    Index("replay_job_items_by_state", "job_id", "state", "position"),
    Index("replay_job_items_by_entry", "entry_id"),
)

replay_job_history = Table(
    "replay_job_history",
    METADATA,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("job_id", String(64), nullable=False, index=True),
    Column("at", UtcTime, nullable=False),
    _text("who"),
    Column("what", Name, nullable=False),
    _text("detail"),
)

#: What a replay was to be, where it was not the letter's message again.
replay_orders = Table(
    "replay_orders",
    METADATA,
    Column("entry_id", ForeignKey("ledger_entries.id", ondelete="CASCADE"), nullable=False),
    _number("replay"),
    _text("to_queue"),
    _text("to_handler"),
    # The edited letter and the one before in their binary wire form; NULL: it was not edited.
    Column("letter", LargeBinary),
    Column("before", LargeBinary),
    _text("content_type"),
    _text("said"),
    PrimaryKeyConstraint("entry_id", "replay"),
)
