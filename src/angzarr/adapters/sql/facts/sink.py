"""The sink of facts: the table ``facts``, written to in batches. A known id keeps its fact."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Engine, TextClause, text
from sqlalchemy.exc import ProgrammingError

from angzarr.adapters.sql.engine.schema import SchemaDatabase
from angzarr.adapters.sql.engine.statements import insert_into
from angzarr.adapters.sql.facts.rows import row_of
from angzarr.adapters.sql.facts.tables import FACTS, facts
from angzarr.errors import Unavailable
from angzarr.facts.fact import Fact

_log = logging.getLogger("angzarr.facts")


class SqlFactSink:
    """Makes or upgrades the table when the first fact is written, unless *migrate* is off.

    Without *upgrade* it makes the table, and upgrades none.
    """

    def __init__(self, engine: Engine, *, migrate: bool = True, upgrade: bool = True) -> None:
        self.database = SchemaDatabase(FACTS, engine, migrate=migrate, upgrade=upgrade)
        new = insert_into(engine, facts)
        self._insert = new.on_conflict_do_nothing(index_elements=["id"])
        self._insert_all = _insert_all(engine) if engine.dialect.name == "postgresql" else None

    def write(self, facts: Sequence[Fact], /) -> None:
        """Write *facts*; raises if the database, not a fact, is at fault."""
        rows = _rows(facts)
        try:
            self._run(rows)
        except (Unavailable, ProgrammingError):
            self.database.look_again()  # perhaps the table is gone
            raise
        except Exception:  # noqa: BLE001 - one bad row must not hold up all others
            self._write_each(rows)

    def close(self) -> None:
        """Close the pooled connections."""
        self.database.close()

    def _write_each(self, rows: Sequence[dict[str, Any]]) -> None:
        for row in rows:
            try:
                self._run([row])
            except (Unavailable, ProgrammingError):
                raise
            except Exception:  # noqa: BLE001 - no try will make the database take it
                _log.exception("fact_refused: %s", row["id"])

    def _run(self, rows: Sequence[dict[str, Any]]) -> None:
        if not rows:  # SQLAlchemy would insert one row of defaults
            return
        if self._insert_all is None:
            self.database.write(lambda connection: connection.execute(self._insert, rows))
            return
        insert, packed = self._insert_all, {"rows": json.dumps(rows, default=_packed)}
        self.database.write(lambda connection: connection.execute(insert, packed))


def _insert_all(engine: Engine) -> TextClause:
    """One statement for however many rows, which travel as one text of JSON."""
    columns = [column for column in facts.columns if column is not facts.c.position]
    names = ", ".join(f'"{column.name}"' for column in columns)
    typed = ", ".join(
        f'"{column.name}" {column.type.compile(dialect=engine.dialect)}' for column in columns
    )
    return text(
        f"INSERT INTO facts ({names}) SELECT {names}"  # noqa: S608 - names of our own columns
        f" FROM json_to_recordset(CAST(:rows AS json)) AS given({typed})"
        " ON CONFLICT (id) DO NOTHING"
    )


def _packed(value: Any) -> str:
    """A time or an amount as PostgreSQL reads it."""
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _rows(facts: Sequence[Fact]) -> list[dict[str, Any]]:
    rows = []
    for fact in facts:
        try:
            rows.append(row_of(fact))
        except Exception:  # noqa: BLE001 - its data may do anything when read
            _log.exception("fact_refused: it cannot be written as a row")
    return rows
