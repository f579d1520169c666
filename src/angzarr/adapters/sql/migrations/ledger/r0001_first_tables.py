"""Entries, their letters and their histories, as tables were before they had revisions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_NAMES = (
    "handler_name", "event_id", "event_type", "domain", "tenant_id", "correlation_id", "reason",
    "category", "error_type", "error_code",
)  # fmt: skip
_BY = {
    "status": "status", "domain": "domain", "handler": "handler_name", "event_type": "event_type",
    "fingerprint": "fingerprint", "tenant": "tenant_id",
}  # fmt: skip


def upgrade() -> None:
    """Make the first tables."""
    _entries()
    op.create_table(
        "ledger_letters",
        sa.Column("entry_id", sa.String(64), _entry(), primary_key=True),
        sa.Column("body", sa.LargeBinary, nullable=False),
        _text("content_type"),
        sa.Column("problem", sa.Text),
        _text("domain"),
        _time("received_at"),
    )
    op.create_table(
        "ledger_history",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("entry_id", sa.String(64), _entry(), nullable=False),
        _time("at", nullable=False),
        *map(_text, ("who", "what", "detail")),
        sa.Column("letter_id", sa.Text),
        sa.Column("replay", sa.Integer),
        sa.UniqueConstraint(
            "entry_id", "letter_id", "replay", name="ledger_history_one_line_a_letter"
        ),
    )
    op.create_index("ix_ledger_history_letter_id", "ledger_history", ["letter_id"])


def _entries() -> None:
    op.create_table(
        "ledger_entries",
        sa.Column("id", sa.String(64), primary_key=True),
        *map(_text, (*_NAMES, "error_message", "fingerprint", "component_type")),
        *map(_text, ("worker", "version")),
        *map(_number, ("retry_count", "occurrences")),
        _time("first_failed_at", nullable=False),
        _time("last_failed_at", nullable=False),
        _text("letter_id"),
        _number("letter_replay"),
        _text("status"),
        sa.Column("failure_class", sa.Text),
        _text("evidence"),
        _number("replays"),
        *map(_time, ("next_replay_at", "published_at", "wake_at")),
        _text("resolved_by"),
        _time("resolved_at"),
        _number("revision"),
    )
    op.create_index("ledger_entries_by_time", "ledger_entries", ["last_failed_at", "id"])
    for name, column in _BY.items():
        op.create_index(
            f"ledger_entries_by_{name}", "ledger_entries", [column, "last_failed_at", "id"]
        )
    op.create_index("ledger_entries_by_event", "ledger_entries", ["event_id"])
    op.create_index("ledger_entries_by_wake", "ledger_entries", ["wake_at"])


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=False)


def _number(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.Integer, nullable=False)


def _time(name: str, *, nullable: bool = True) -> sa.Column[object]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=nullable)


def _entry() -> sa.ForeignKey:
    return sa.ForeignKey("ledger_entries.id", ondelete="CASCADE")
