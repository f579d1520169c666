"""Facts in SQL: spooled in memory, written in batches by one thread a process (spec F1)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Engine, Select, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ProgrammingError

from angzarr.adapters.sql.engine import build_engine, in_transaction, reading
from angzarr.adapters.sql.fact_rows import fact_of, key_of, row_of, utc
from angzarr.adapters.sql.fact_spool import BATCH, MOST, FactSpool
from angzarr.adapters.sql.facts_tables import create_facts_table
from angzarr.adapters.sql.facts_tables import facts as table
from angzarr.errors import Unavailable
from angzarr.facts import Fact

_log = logging.getLogger("angzarr.facts")


class SqlFactLog:
    """Facts in the table ``facts``, which is made when the first one is written.

    *most* facts are kept in memory while the database is away; see FactSpool for what happens
    beyond. A worker that is killed loses what waited, LINGER's worth on a healthy database.
    """

    def __init__(self, database: Engine | str, *, most: int = MOST, batch: int = BATCH) -> None:
        self._engine = build_engine(database) if isinstance(database, str) else database
        dialect = postgresql if self._engine.dialect.name == "postgresql" else sqlite
        self._insert = dialect.insert(table).on_conflict_do_nothing(index_elements=["id"])
        self._spool = FactSpool(self._write, most=most, batch=batch)
        self._ready = False

    @property
    def dropped(self) -> int:
        """How many facts this process lost to a full spool or to an end without a database."""
        return self._spool.dropped

    def append(self, facts: Sequence[Fact], /) -> None:
        """Spool *facts*; they are written soon."""
        self._spool.append(facts)

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
        """Return at most *limit* facts in the order in which they were written.

        *after* is the id of the last fact already seen; raises LookupError for an unknown one.
        Raises Unavailable if the database is away.
        """
        equal = {"type": type, "subtype": subtype, "tool_id": tool_id}
        wanted = _wanted(equal, since).order_by(table.c.position).limit(limit)
        self._prepare()
        if after is not None:
            wanted = wanted.where(table.c.position > self._position(after))
        rows = in_transaction(
            reading(self._engine), lambda connection: connection.execute(wanted).mappings().all()
        )
        return [fact_of(row) for row in rows]

    def _position(self, id: str) -> int:
        found = select(table.c.position).where(table.c.id == key_of(id))
        position = in_transaction(reading(self._engine), lambda c: c.execute(found).scalar())
        if position is None:
            msg = f"no fact has the id {id!r}"
            raise LookupError(msg)
        return int(position)

    def _prepare(self) -> None:
        if not self._ready:
            create_facts_table(self._engine)
            self._ready = True

    def _write(self, facts: Sequence[Fact]) -> None:
        """Write *facts*; raises if the database, not a fact, is at fault."""
        self._prepare()
        rows = _rows(facts)
        try:
            self._run(rows)
        except (Unavailable, ProgrammingError):
            self._ready = False  # perhaps the table is gone
            raise
        except Exception:  # noqa: BLE001 - one bad row must not hold up all others
            self._write_each(rows)

    def _write_each(self, rows: Sequence[dict[str, Any]]) -> None:
        for row in rows:
            try:
                self._run([row])
            except (Unavailable, ProgrammingError):
                raise
            except Exception:  # noqa: BLE001 - no try will make the database take it
                _log.exception("fact_refused: %s", row["id"])

    def _run(self, rows: Sequence[dict[str, Any]]) -> None:
        if rows:  # without any, SQLAlchemy would insert one row of defaults
            in_transaction(self._engine, lambda connection: connection.execute(self._insert, rows))


def _rows(facts: Sequence[Fact]) -> list[dict[str, Any]]:
    rows = []
    for fact in facts:
        try:
            rows.append(row_of(fact))
        except Exception:  # noqa: BLE001 - its data may do anything when read
            _log.exception("fact_refused: it cannot be written as a row")
    return rows


def _wanted(equal: Mapping[str, str | None], since: datetime | None) -> Select[Any]:
    wanted = select(table)
    for name, value in equal.items():
        if value is not None:
            wanted = wanted.where(table.c[name] == value)
    return wanted if since is None else wanted.where(table.c.timestamp >= utc(since))
