"""The tables of alerts, in the ledger's database. Times are UTC."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, ForeignKey, Index, Integer, String, Table

from angzarr.adapters.sql.ledger.tables import METADATA, Name, UtcTime, ValidText

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
