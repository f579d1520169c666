"""Rejected commands in SQL: one row each, one transaction a verb."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import Connection, Engine, RowMapping, insert, select, tuple_, update
from sqlalchemy.dialects import postgresql, sqlite

from angzarr.adapters.sql.engine import in_transaction, reading
from angzarr.adapters.sql.rejection_tables import create_rejection_tables, rejected_commands
from angzarr.aggregates.book import Address
from angzarr.sagas.log import Case, RejectionLog, Status, Wanted, asked_again, noted

_ADDRESSES: Final = ("source", "target")
#: Texts of others, which may hold what a database refuses: kept as JSON.
_TEXTS: Final = ("saga", "command_id", "command_type", "reason", "answer", "correlation_id")

_row = rejected_commands.c


class SqlRejectionLog(RejectionLog):
    """Cases in the table ``rejected_commands``, which is made before the first use."""

    def __init__(self, engine: Engine, *, close: Callable[[], None] | None = None) -> None:
        self._engine = engine
        self._close = close or engine.dispose
        self._insert = (postgresql if engine.dialect.name == "postgresql" else sqlite).insert
        self._ready = False

    def note(self, case: Case, /) -> Case:
        """Keep *case*."""

        def step(connection: Connection) -> Case:
            written = row_of(case)
            fresh = self._insert(rejected_commands).values(**written)
            here = fresh.on_conflict_do_nothing(index_elements=["id"]).returning(_row.id)
            if connection.execute(here).first() is not None:
                return case
            kept = noted(_locked(connection, case.id), case)
            _write(connection, kept)
            return kept

        self._prepare()
        return in_transaction(self._engine, step)

    def ask_again(self, id: str, now: datetime, /) -> Case | None:
        """Count that the source is asked again."""

        def step(connection: Connection) -> Case | None:
            kept = _locked(connection, id)
            if kept is not None:
                _write(connection, kept := asked_again(kept, now))
            return kept

        self._prepare()
        return in_transaction(self._engine, step)

    def look(self, id: str, /) -> Sequence[Case]:
        """Return the cases whose id begins so, two at most."""
        wanted = select(rejected_commands).where(_row.id.startswith(id, autoescape=True)).limit(2)
        return self._read(wanted)

    def cases(
        self, wanted: Wanted, /, *, limit: int, before: tuple[datetime, str] | None = None
    ) -> Sequence[Case]:
        """Return cases, the newest first."""
        columns = {"saga": _row.saga, "domain": _row.source_domain, "status": _row.status,
                   "correlation_id": _row.correlation_id}  # fmt: skip
        found = select(rejected_commands)
        for name, asked in wanted._asdict().items():
            if asked is not None:
                value = json.dumps(asked) if name in _TEXTS else str(asked)
                found = found.where(columns[name] == value)
        if before is not None:
            found = found.where(tuple_(_row.rejected_at, _row.id) < before)
        return self._read(found.order_by(_row.rejected_at.desc(), _row.id.desc()).limit(limit))

    def close(self) -> None:
        """Let the connections go."""
        self._close()

    def _read(self, wanted: Any) -> Sequence[Case]:
        self._prepare()
        return in_transaction(
            reading(self._engine),
            lambda connection: [case_in(row) for row in connection.execute(wanted).mappings()],
        )

    def _prepare(self) -> None:
        if not self._ready:
            create_rejection_tables(self._engine)
            self._ready = True


def row_of(case: Case) -> dict[str, Any]:
    """Return the row of *case*."""
    said = asdict(case) | {"status": case.status.value}
    for of in _ADDRESSES:
        said.pop(of)
        said |= {f"{of}_{name}": text for name, text in getattr(case, of)._asdict().items()}
    return said | {name: json.dumps(said[name]) for name in _TEXTS}


def case_in(row: RowMapping) -> Case:
    """Return the case in *row*."""
    said: dict[str, Any] = dict(row) | {name: json.loads(row[name]) for name in _TEXTS}
    for of in _ADDRESSES:
        said[of] = Address(*(said.pop(f"{of}_{name}") for name in Address._fields))
    said["status"] = Status(said["status"])
    for name in ("rejected_at", "changed_at"):
        said[name] = said[name].replace(tzinfo=UTC) if said[name].tzinfo is None else said[name]
    return Case(**said)


def _locked(connection: Connection, id: str) -> Case | None:
    wanted = select(rejected_commands).where(_row.id == id).with_for_update()
    row = connection.execute(wanted).mappings().first()
    return None if row is None else case_in(row)


def _write(connection: Connection, case: Case) -> None:
    """Write *case* over its row, or anew where that was deleted meanwhile."""
    written = row_of(case)
    changed = connection.execute(
        update(rejected_commands).where(_row.id == case.id).values(**written)
    )
    if not changed.rowcount:
        connection.execute(insert(rejected_commands), written)
