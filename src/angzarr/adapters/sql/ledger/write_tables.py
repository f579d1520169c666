"""The table of writes that are remembered (spec A5). Times are UTC.

The table of the brake: one row each time that a person moved it.
"""

from __future__ import annotations

from sqlalchemy import JSON, Column, Integer, LargeBinary, Table

from angzarr.adapters.sql.ledger.tables import METADATA, Name, UtcTime, ValidText

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
