"""The tables of the fleet: its members and the releases they ran. Times are UTC.

Apart from those of claims: whoever may not create them has no register, and keeps his claims.
"""

from __future__ import annotations

import weakref

from sqlalchemy import Column, DateTime, Engine, MetaData, Table, Text

from angzarr.adapters.sql.engine import create_missing

METADATA = MetaData()

_READY: weakref.WeakSet[Engine] = weakref.WeakSet()

#: `said` is the member as JSON.
fleet_members = Table(
    "fleet_members",
    METADATA,
    Column("owner", Text, primary_key=True),
    Column("said", Text, nullable=False),
    Column("said_at", DateTime(timezone=True), nullable=False, index=True),
)

fleet_releases = Table(
    "fleet_releases",
    METADATA,
    Column("name", Text, primary_key=True),
    Column("first_seen_at", DateTime(timezone=True), nullable=False),
    Column("last_seen_at", DateTime(timezone=True), nullable=False, index=True),
)


def ensure_fleet_tables(engine: Engine) -> None:
    """Create the tables before the first use of *engine* in this process, which may come late."""
    if engine not in _READY:
        create_missing(engine, METADATA)
        _READY.add(engine)
