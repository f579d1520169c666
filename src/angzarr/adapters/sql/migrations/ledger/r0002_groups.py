"""Groups with what people say of them, and counts of entries; both still empty."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make the tables, which touches no row."""
    texts = ("handler_name", "domain", "event_type", "reason", "error_type", "error_message")
    op.create_table(
        "ledger_groups",
        sa.Column("fingerprint", sa.Text, primary_key=True),
        *map(_text, texts),
        sa.Column("failure_class", sa.Text),
        _text("latest_entry_id"),
        _time("first_failed_at", nullable=False),
        _time("last_failed_at", nullable=False),
        *map(_count, ("entries", "open_entries", "occurrences")),
        *map(_text, ("status", "owner", "note")),
        _time("muted_until"),
        sa.Column("revision", sa.Integer, nullable=False),
    )
    place = ["last_failed_at", "fingerprint"]
    some_open = sa.text("open_entries > 0")
    op.create_index("ledger_groups_by_time", "ledger_groups", place)
    op.create_index(
        "ledger_groups_open",
        "ledger_groups",
        place,
        postgresql_where=some_open,
        sqlite_where=some_open,
    )
    _history()
    op.create_table(
        "ledger_counts",
        sa.Column("key", sa.String(64), primary_key=True),
        *map(_text, ("fingerprint", "domain", "handler_name", "event_type", "failure_class")),
        _text("status"),
        *map(_count, ("entries", "occurrences", "replays")),
    )
    op.create_index("ix_ledger_counts_fingerprint", "ledger_counts", ["fingerprint"])


def _history() -> None:
    group = sa.ForeignKey("ledger_groups.fingerprint", ondelete="CASCADE")
    op.create_table(
        "ledger_group_history",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("fingerprint", sa.Text, group, nullable=False),
        _time("at", nullable=False),
        *map(_text, ("who", "what", "detail")),
    )
    op.create_index("ix_ledger_group_history_fingerprint", "ledger_group_history", ["fingerprint"])


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=False)


def _count(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False)


def _time(name: str, *, nullable: bool = True) -> sa.Column[object]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=nullable)
