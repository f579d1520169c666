"""The gate of a handler: who replaces a read model waits for runs amid it, and lets none begin.

Nobody waits to be let in: that would keep a slot of a worker from all other handlers. A run that
has only read so far holds no lock that a switch-over could wait for; what it read would be gone by
the time that it writes. Who fills a read model in place shuts the gate for one short batch after
the other; there runs queue up, as they would else hardly ever find it open, but no longer than the
database lets them wait for a lock.

On SQLite a run keeps all other writers out anyway.

Whose duty it is to look after lanes: one keeper's at a time, by the database's clock.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Any, Final

from sqlalchemy import Connection, Engine, bindparam, case, false, func, or_, select
from sqlalchemy.dialects import postgresql, sqlite

from angzarr.adapters.sql.engine.statements import database_now, database_time_after
from angzarr.adapters.sql.event_store.tables import to_text
from angzarr.adapters.sql.ordering.tables import ordering_keepers

#: The parameters of `LETS_IN`.
_GATE: Final = "g_gate"
_PAUSE: Final = "g_pause"

#: Lets who asks in until its transaction ends, and tells whether it did.
LETS_IN: Final[Any] = case(
    (
        func.pg_try_advisory_xact_lock_shared(bindparam(_GATE)),
        func.pg_advisory_xact_lock_shared(bindparam(_PAUSE)).is_not(None),
    ),
    else_=false(),
)


#: Whose address has `options` of its own waits for no lock for ever all the same: while it waits
#: nobody is let in.
_BOUNDED: Final = select(func.set_config("lock_timeout", "4500ms", True)).where(  # noqa: FBT003 - of SQL
    func.current_setting("lock_timeout") == "0"
)


@lru_cache(maxsize=1024)
def keys_of(handler: str) -> dict[str, int]:
    """Return the parameters of `LETS_IN` for the runs of *handler*; do not change them."""
    return {_GATE: _key("run", handler), _PAUSE: _key("batch", handler)}


def shut(connection: Connection, handler: str) -> None:
    """Let no run of *handler* begin until the transaction ends; waits for those under way.

    None begins while it waits, so that it has its turn.
    """
    for key in keys_of(handler).values():
        _lock(connection, key)


def pause(connection: Connection, handler: str) -> None:
    """Let runs of *handler* wait until the transaction ends; waits for those under way.

    They have their turn before the next pause.
    """
    _lock(connection, keys_of(handler)[_PAUSE])


def _lock(connection: Connection, key: int) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(_BOUNDED)
        connection.execute(select(func.pg_advisory_xact_lock(key)))


def _key(what: str, handler: str) -> int:
    digest = hashlib.sha256(f"angzarr {what} {handler}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


_keepers = ordering_keepers.c


class LaneDuty:
    """The statement by which keepers take turns, built once for an engine."""

    def __init__(self, engine: Engine) -> None:
        insert = (postgresql if engine.dialect.name == "postgresql" else sqlite).insert
        said = {
            "handlers": bindparam("names"),
            "keeper": bindparam("by"),
            "until": database_time_after(engine),
        }
        row = insert(ordering_keepers).values(said)
        free = or_(_keepers.keeper == bindparam("by"), _keepers.until <= database_now(engine))
        mine = {"keeper": row.excluded.keeper, "until": row.excluded.until}
        taken = row.on_conflict_do_update(index_elements=["handlers"], set_=mine, where=free)
        self._take = taken.returning(_keepers.keeper)

    def take(
        self, connection: Connection, keeper: str, span: timedelta, handlers: Sequence[str]
    ) -> bool:
        """Let *keeper* be on duty for *span*, unless another one is; tell whether it is."""
        names = json.dumps(sorted(handlers)).encode()
        values = {
            "names": hashlib.sha256(names).hexdigest(),
            "by": to_text(keeper),
            "seconds": span.total_seconds(),
        }
        return connection.execute(self._take, values).first() is not None
