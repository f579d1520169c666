"""The gate of a handler: who replaces a read model waits for runs amid it, and lets none begin.

Nobody waits to be let in: that would keep a slot of a worker from all other handlers. A run that
has only read so far holds no lock that a switch-over could wait for; what it read would be gone by
the time that it writes. On SQLite a run keeps all other writers out anyway.
"""

from __future__ import annotations

import hashlib
from typing import Final

from sqlalchemy import Connection, func, select

from angzarr.adapters.sql.raw import raw
from angzarr.errors import StoreUnavailable

_ENTER: Final = "SELECT pg_try_advisory_xact_lock_shared(%s)"


def enter(connection: Connection, handler: str) -> None:
    """Begin a run of *handler*, first thing in its transaction.

    Raises StoreUnavailable while the gate is shut, or while somebody waits to shut it.
    """
    if connection.dialect.name != "postgresql":
        return
    with raw(connection, _ENTER) as lent:  # every run does so: SQLAlchemy would double its cost
        (entered,) = lent.execute(_ENTER, (_key(handler),)).fetchone()
    if not entered:
        msg = f"the read model of {handler} is just being replaced or rebuilt"
        raise StoreUnavailable(msg)


def shut(connection: Connection, handler: str) -> None:
    """Let no run of *handler* begin until the transaction ends; waits for those under way.

    None begins while it waits, so that it has its turn.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_key(handler))))


def _key(handler: str) -> int:
    digest = hashlib.sha256(f"angzarr run {handler}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)
