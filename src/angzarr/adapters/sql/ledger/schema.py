"""The ledger's schema, and its tables of jobs, alerts, writes and stops. Times are UTC."""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    JSON,
    BigInteger,
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

from angzarr.adapters.sql.engine.schema import Schema
from angzarr.adapters.sql.ledger.column_types import Name, UtcTime, ValidText
from angzarr.adapters.sql.ledger.tables import (
    HEAD,
    METADATA,
    a_name,
    a_number,
    a_text,
    a_time,
    ledger_entries,
)
from angzarr.errors import LedgerUnavailable

LEDGER: Final = Schema(
    name="ledger",
    called="the ledger",
    metadata=METADATA,
    head=HEAD,
    first=(ledger_entries,),
    cure="angzarr ledger upgrade",
    setting="ledger_migrate",
    waiting="letters",
    away=LedgerUnavailable,
)

#: Holds on bodies that letters had and that are to end (`released_payloads`).
ledger_released_payloads = Table(
    "ledger_released_payloads",
    METADATA,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("uri", Text, nullable=False),
    Column("holder", Text, nullable=False),
    # Who holds the body instead, from before this hold ends.
    Column("next_holder", Text),
    sqlite_autoincrement=True,  # rows are deleted by their numbers, perhaps late
)

#: What was seen of each subject and said of it; `state` is the watch as JSON.
ledger_alert_watches = Table(
    "ledger_alert_watches",
    METADATA,
    # As long as a group's fingerprint, which PostgreSQL indexes, and a few letters.
    Column("subject", ValidText, primary_key=True),
    Column("state", ValidText, nullable=False),
    Column("open", Boolean, nullable=False),
    Column("revision", Integer, nullable=False),
    Index("ledger_alert_watches_open", "open", "subject"),
)

#: One row an alert; `said` is the alert as JSON.
ledger_alerts = Table(
    "ledger_alerts",
    METADATA,
    Column("id", String(64), primary_key=True),
    Column("raised_at", UtcTime, nullable=False),
    Column("said", ValidText, nullable=False),
    Index("ledger_alerts_by_time", "raised_at", "id"),
)

#: One row an alert and sink. `token` names who has it in hand, until `due_at`; a row that is no
#: longer waiting has no `due_at`.
ledger_alert_deliveries = Table(
    "ledger_alert_deliveries",
    METADATA,
    Column("alert_id", ForeignKey("ledger_alerts.id", ondelete="CASCADE"), primary_key=True),
    Column("sink", Name, primary_key=True),
    Column("raised_at", UtcTime, nullable=False),
    Column("due_at", UtcTime),
    Column("token", String(64), nullable=False),
    Column("fate", Name, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("problem", ValidText, nullable=False),
    Index("ledger_alert_deliveries_due", "sink", "due_at"),
)

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
    # The engine that works on it, and until when no other may.
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
    # Versions of configurations that a person chose, as JSON; NULL: as pinned, the same.
    Column("config", Text),
    # The hold of the letter before on its body in a payload store: set in the newest edit only.
    Column("payload_uri", Text),
    Column("payload_holder", Text),
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

#: While `status` is null `until` is the end of its worker's lease and `body` what he chose to act
#: on, then the end of its retention and the answer.
remembered_writes = Table(
    "remembered_writes",
    METADATA,
    Column("caller", ValidText, primary_key=True),
    Column("key", ValidText, primary_key=True),
    Column("fingerprint", ValidText, nullable=False),
    Column("token", ValidText, nullable=False),
    Column("until", UtcTime, nullable=False, index=True),
    Column("status", Integer),
    Column("headers", JSON),
    Column("body", LargeBinary),
)

#: Facts of acts, written with them, that wait for a relay. A place is never used again: a relay
#: removes facts by their places.
ledger_fact_outbox = Table(
    "ledger_fact_outbox",
    METADATA,
    Column("position", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("text", ValidText, nullable=False),
    sqlite_autoincrement=True,
)

ledger_brake = Table(
    "ledger_brake",
    METADATA,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("scope", Name, nullable=False),
    Column("by", ValidText, nullable=False),
    Column("why", ValidText, nullable=False),
    Column("at", UtcTime, nullable=False),
    Column("until", UtcTime),
)
