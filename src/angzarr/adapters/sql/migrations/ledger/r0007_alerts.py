"""Alerts: what was seen and said, alerts, and where they are to go."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

#: Apart from their tables: that one is there already does not say that its indexes are.
_INDEXES = (
    ("ledger_alert_watches_open", "ledger_alert_watches", ["open", "subject"]),
    ("ledger_alerts_by_time", "ledger_alerts", ["raised_at", "id"]),
    ("ledger_alert_deliveries_due", "ledger_alert_deliveries", ["sink", "due_at"]),
)


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "ledger_alert_watches",
        sa.Column("subject", sa.Text, primary_key=True),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("open", sa.Boolean, nullable=False),
        sa.Column("revision", sa.Integer, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "ledger_alerts",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("raised_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("said", sa.Text, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "ledger_alert_deliveries",
        sa.Column(
            "alert_id",
            sa.String(64),
            sa.ForeignKey("ledger_alerts.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column("sink", sa.Text, primary_key=True),
        sa.Column("raised_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True)),
        sa.Column("token", sa.String(64), nullable=False),
        sa.Column("fate", sa.Text, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("problem", sa.Text, nullable=False),
        if_not_exists=True,
    )
    for name, table, columns in _INDEXES:
        op.create_index(name, table, columns, if_not_exists=True)
