"""Facts in SQL: spooled in memory, written in batches by one thread a process (spec F1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Engine, Select, select

from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.engine.statements import utc
from angzarr.adapters.sql.facts.rows import fact_of, key_of
from angzarr.adapters.sql.facts.sink import SqlFactSink
from angzarr.adapters.sql.facts.tables import facts
from angzarr.facts.fact import Fact
from angzarr.facts.lost_acts import tell_lost_acts
from angzarr.facts.spool import BATCH, MOST, FactSpool


class SqlFactLog:
    """Facts in the table ``facts``, which is made, or upgraded, when the first one is written.

    *most* facts are kept in memory while the database is away; see FactSpool for what happens
    beyond. A process that may end at any moment writes without *upgrade*.
    A worker that is killed loses what waited, LINGER's worth on a healthy database.
    """

    def __init__(
        self,
        database: Engine | str,
        *,
        most: int = MOST,
        batch: int = BATCH,
        migrate: bool = True,
        upgrade: bool = True,
    ) -> None:
        self._engine = build_engine(database) if isinstance(database, str) else database
        sink = SqlFactSink(self._engine, migrate=migrate, upgrade=upgrade)
        self._database = sink.database
        self._spool: FactSpool[Fact] = FactSpool(
            sink.write, most=most, batch=batch, on_lost=tell_lost_acts
        )

    @property
    def dropped(self) -> int:
        """How many facts this process lost to a full spool or to an end without a database."""
        return self._spool.dropped

    def append(self, facts: Sequence[Fact], /, *, before_ack: bool = False) -> None:  # noqa: ARG002 - spooled at once
        """Spool *facts*; they are written soon."""
        self._spool.append(facts)

    def carry(self, facts: Sequence[Fact], /, *, before_ack: bool = False) -> tuple[str, ...]:  # noqa: ARG002 - spooled at once
        """Spool *facts*: no claim's ending keeps them."""
        self._spool.append(facts)
        return ()

    def lines(self, facts: Sequence[Fact], /) -> tuple[str, ...]:  # noqa: ARG002 - no claim keeps any
        """None of them."""
        return ()

    def flush(self, within: timedelta, /) -> bool:
        """Wait until the database has what is spooled."""
        return self._spool.flush(within)

    def close(self) -> None:
        """Write what is spooled, giving up after two seconds."""
        self._spool.close()

    def read(
        self,
        *,
        type: str | None = None,
        subtype: str | None = None,
        tool_id: str | None = None,
        since: datetime | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> list[Fact]:
        """At most *limit* facts in the order in which they were written.

        *after* is the id of the last fact already seen; raises LookupError for an unknown one.
        Raises Unavailable if the database is away.
        """
        equal = {"type": type, "subtype": subtype, "tool_id": tool_id}
        wanted = _wanted(equal, since).order_by(facts.c.position).limit(limit)
        if after is not None:
            wanted = wanted.where(facts.c.position > self._position(after))
        rows = self._database.read(lambda connection: connection.execute(wanted).mappings().all())
        return [fact_of(row) for row in rows]

    def _position(self, id: str) -> int:
        found = select(facts.c.position).where(facts.c.id == key_of(id))
        position = self._database.read(lambda connection: connection.execute(found).scalar())
        if position is None:
            msg = f"no fact has the id {id!r}"
            raise LookupError(msg)
        return int(position)


def _wanted(equal: Mapping[str, str | None], since: datetime | None) -> Select[Any]:
    wanted = select(facts)
    for name, value in equal.items():
        if value is not None:
            wanted = wanted.where(facts.c[name] == value)
    return wanted if since is None else wanted.where(facts.c.timestamp >= utc(since))
