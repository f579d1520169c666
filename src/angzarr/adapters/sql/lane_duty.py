"""Whose duty it is to look after lanes: one keeper's at a time, by the database's clock."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import timedelta

from sqlalchemy import Connection, Engine, bindparam, or_
from sqlalchemy.dialects import postgresql, sqlite

from angzarr.adapters.sql.book_rows import to_text
from angzarr.adapters.sql.database_time import database_now, database_time_after
from angzarr.adapters.sql.lane_tables import ordering_keepers

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
