"""The table of the brake: one row each time that a person moved it."""

from __future__ import annotations

from sqlalchemy import Column, Integer, Table

from angzarr.adapters.sql.ledger_tables import METADATA, Name, UtcTime, ValidText

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
