"""Rejected commands in SQL: one row each, one transaction a verb.

Foreign texts are kept as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, Engine, func, insert, select, tuple_, update

from angzarr.adapters.sql.engine.schema import SchemaDatabase
from angzarr.adapters.sql.engine.statements import insert_into, utc
from angzarr.adapters.sql.event_store.tables import BOOKS, prune_rejections, rejected_commands
from angzarr.aggregates.book import Address
from angzarr.sagas.log import (
    AskedAgain,
    Case,
    CaseFilter,
    RejectionLog,
    RejectionStatus,
    asked_again,
    noted,
)
from angzarr.sagas.rejection_answers import CompensationStep

_ADDRESSES: Final = ("source", "target")
#: Times, numbers, and what is read and written by itself.
_PLAIN: Final = ("source_sequence", "first_event", "event_count", "asked_again")
_TIMES: Final = ("rejected_at", "changed_at")
_TEXTS: Final = tuple(
    one.name
    for one in fields(Case)
    if one.name not in {"id", "status", *_ADDRESSES, *_PLAIN, *_TIMES}
)


def row_of(case: Case) -> dict[str, Any]:
    """The row of *case*."""
    row: dict[str, Any] = {"id": id_text(case.id), "status": case.status.value}
    row |= {name: getattr(case, name) for name in _PLAIN}
    row |= {name: utc(getattr(case, name)) for name in _TIMES}
    row |= {name: text_of(getattr(case, name)) for name in _TEXTS}
    for of in _ADDRESSES:
        address: Address = getattr(case, of)
        row |= {f"{of}_{name}": text_of(text) for name, text in address._asdict().items()}
    return row


def case_of_row(row: Mapping[Any, Any]) -> Case:
    """The case in *row*, which may lack its rejection."""
    said: dict[str, Any] = {name: row[name] for name in _PLAIN}
    said |= {name: utc(row[name]) for name in _TIMES}
    said |= {name: json.loads(row[name]) for name in _TEXTS if name in row}
    for of in _ADDRESSES:
        said[of] = Address(*(json.loads(row[f"{of}_{name}"]) for name in Address._fields))
    said["steps"] = tuple(map(CompensationStep, said["steps"]))
    id_ = json.loads(f'"{row["id"]}"')
    return Case(**said, id=id_, status=RejectionStatus(row["status"]))


def text_of(value: object) -> str:
    """Write *value* as ASCII, in which a database finds nothing that it refuses."""
    return json.dumps(value, separators=(",", ":"))


def id_text(id: str) -> str:
    """Write *id*, or how one begins, so that what begins alike still does."""
    return json.dumps(id)[1:-1]


_row = rejected_commands.c
#: A list tells nothing of a rejection, which may be large.
_LISTED: Final = [column for column in _row if column.name != "rejection"]


class SqlRejectionLog(RejectionLog):
    """Cases in the table ``rejected_commands``.

    It is made or, unless *migrate* is False, upgraded before the first use.
    """

    def __init__(
        self, engine: Engine, *, close: Callable[[], None] | None = None, migrate: bool = True
    ) -> None:
        self._database = SchemaDatabase(BOOKS, engine, migrate=migrate, close=close)

    def note(self, case: Case, /) -> Case:
        """Keep *case*."""

        def step(connection: Connection) -> Case:
            fresh = insert_into(connection, rejected_commands).values(**row_of(case))
            here = fresh.on_conflict_do_nothing(index_elements=["id"]).returning(_row.id)
            if connection.execute(here).first() is not None:
                return case
            before = _locked(connection, case.id)
            kept = noted(before, case)
            if kept is not before:
                _write(connection, kept)
            return kept

        return self._database.write(step)

    def ask_again(self, id: str, asked: AskedAgain, /) -> Case | None:
        """Count that the source is asked again."""

        def step(connection: Connection) -> Case | None:
            kept = _locked(connection, id)
            if kept is not None:
                _write(connection, kept := asked_again(kept, asked))
            return kept

        return self._database.write(step)

    def look(self, id: str, /) -> Sequence[Case]:
        """The cases whose id begins so, two at most."""
        beginning = id_text(id)
        found = select(rejected_commands).where(
            _row.id.startswith(beginning, autoescape=True),
            func.substr(_row.id, 1, len(beginning)) == beginning,  # LIKE of SQLite ignores case
        )
        return self._read(found.order_by(func.length(_row.id)).limit(2))

    def cases(
        self, wanted: CaseFilter, /, *, limit: int, before: tuple[datetime, str] | None = None
    ) -> Sequence[Case]:
        """Cases, the newest first."""
        found = select(*_LISTED)
        for column, asked in (
            (_row.saga, wanted.saga),
            (_row.source_domain, wanted.domain),
            (_row.correlation_id, wanted.correlation_id),
        ):
            if asked is not None:
                found = found.where(column == text_of(asked))
        if wanted.status is not None:
            found = found.where(_row.status == wanted.status.value)
        if before is not None:
            place = (utc(before[0]), id_text(before[1]))
            found = found.where(tuple_(_row.rejected_at, _row.id) < place)
        return self._read(found.order_by(_row.rejected_at.desc(), _row.id.desc()).limit(limit))

    def prune(self, before: datetime, /, *, limit: int) -> int:
        """Remove closed cases that did not change since *before*."""
        return self._database.write(lambda c: prune_rejections(c, before, limit))

    def close(self) -> None:
        """Let the connections go."""
        self._database.close()

    def _read(self, wanted: Any) -> Sequence[Case]:
        return self._database.read(
            lambda connection: [case_of_row(row) for row in connection.execute(wanted).mappings()]
        )


def _locked(connection: Connection, id: str) -> Case | None:
    wanted = select(rejected_commands).where(_row.id == id_text(id)).with_for_update()
    row = connection.execute(wanted).mappings().first()
    return None if row is None else case_of_row(row)


def _write(connection: Connection, case: Case) -> None:
    """Write *case* over its row, or anew where that was deleted meanwhile."""
    written = row_of(case)
    changed = connection.execute(
        update(rejected_commands).where(_row.id == written["id"]).values(**written)
    )
    if not changed.rowcount:
        connection.execute(insert(rejected_commands), written)
