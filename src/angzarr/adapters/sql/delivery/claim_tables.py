"""The tables beside the claims: claims, leases, finished steps, waiting messages and facts, bodies.

They are created together, where they are missing. Times are UTC.
"""

from __future__ import annotations

import weakref
from typing import Final

from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    Engine,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
)

from angzarr.adapters.sql.engine.engine import create_missing

METADATA = MetaData()

_READY: weakref.WeakSet[Engine] = weakref.WeakSet()

idempotency_keys = Table(
    "idempotency_keys",
    METADATA,
    Column("key", Text, primary_key=True),
    Column("status", Text, nullable=False),
    Column("result", Text),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("expires_at", DateTime(timezone=True), nullable=False, index=True),
    Column("token", Text, nullable=False),
    Column("owner", Text, nullable=False),
    Column("replay", Integer, nullable=False),
    Column("hop", Integer, nullable=False),
    Column("starts", Integer, nullable=False),
    Column("fingerprint", Text, nullable=False),
)

owner_leases = Table(
    "owner_leases",
    METADATA,
    Column("owner", Text, primary_key=True),
    Column("expires_at", DateTime(timezone=True), nullable=False, index=True),
)

#: `number` is a step's place in the order of its log; `undoing`, the same in all rows of one, says
#: why they are being undone.
finished_steps = Table(
    "finished_steps",
    METADATA,
    Column("key", Text, primary_key=True),
    Column("replay", Integer, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("number", Integer, nullable=False),
    Column("undo", Text, nullable=False),
    Column("data", Text, nullable=False),
    Column("undoing", Text),
    Column("expires_at", DateTime(timezone=True), nullable=False, index=True),
)

#: `token` names the mover that has a row; until `due_at`, which is the end of its lease then.
waiting_messages = Table(
    "waiting_messages",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("due_at", DateTime(timezone=True), nullable=False, index=True),
    Column("token", Text, nullable=False, index=True),
    Column("message", Text, nullable=False),
)

#: Facts that wait for a relay. A place is never used again: a relay removes facts by their places,
#: and two may have read the same ones.
fact_outbox: Final = Table(
    "fact_outbox",
    METADATA,
    Column("position", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("text", Text, nullable=False),
    sqlite_autoincrement=True,
)

#: The register of bodies in payload stores; `state` has been so `since` then.
stored_payloads: Final = Table(
    "stored_payloads",
    METADATA,
    Column("uri", Text, primary_key=True),
    Column("address", Text, nullable=False, index=True),
    Column("size", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("since", DateTime(timezone=True), nullable=False),
    Index("stored_payloads_by_state", "state", "since"),
)

payload_holders: Final = Table(
    "payload_holders",
    METADATA,
    Column("uri", Text, primary_key=True),
    Column("holder", Text, primary_key=True),
)


def create_tables(engine: Engine) -> None:
    """Create these tables if they are missing; any number of processes may do so at once."""
    create_missing(engine, METADATA)


def ensure_tables(engine: Engine) -> None:
    """Create the tables before the first use of *engine* in this process, which may come late."""
    if engine not in _READY:
        create_tables(engine)
        _READY.add(engine)
