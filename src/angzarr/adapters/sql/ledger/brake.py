"""The brake as a table of the ledger's database: its last row is how it stands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, Row, Select, insert, select, text

from angzarr.adapters.sql.ledger.database import LedgerDatabase
from angzarr.adapters.sql.ledger.fact_outbox import put_facts
from angzarr.adapters.sql.ledger.schema import ledger_brake
from angzarr.analysis.ledger.act_facts import fact_of_brake
from angzarr.analysis.ledger.emergency_stop import (
    MOST_PULLS,
    Brake,
    BrakeState,
    Scope,
    moved,
    standing,
)
from angzarr.analysis.ledger.entry import is_known, read_word
from angzarr.clock import Clock, SystemClock
from angzarr.facts.act import act_origin

_columns = ledger_brake.c
#: Moves that are read at once where one is not enough: one more than are looked at, to know of it.
_PAGES: Final = (1, 50, MOST_PULLS - 50)


class SqlBrake(Brake):
    """Rows are only ever added; safe to use from threads."""

    def __init__(self, database: LedgerDatabase, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()

    def state(self) -> BrakeState:
        """The state as it is."""
        return self._database.read(lambda connection: standing(_newest_first(connection)))

    def put(
        self,
        scope: Scope,
        *,
        by: str,
        why: str = "",
        until: datetime | None = None,
        seen: int | None = None,
    ) -> BrakeState:
        """Pull or release it."""
        now = self._clock.now()
        asked = BrakeState(scope=scope, by=by, why=why, at=now, until=until)

        def move(connection: Connection) -> BrakeState:
            if connection.dialect.name == "postgresql":  # two that pull at once go one by one
                connection.execute(text(f"LOCK TABLE {ledger_brake.name} IN EXCLUSIVE MODE"))
            before = next(_newest_first(connection), BrakeState())
            after = moved(before, asked, now, seen)
            fields = asdict(after)
            del fields["revision"], fields["first"], fields["earlier"]
            connection.execute(insert(ledger_brake).values(fields))
            stands = standing(_newest_first(connection))
            put_facts(connection, [fact_of_brake(after, stands.revision, act_origin())])
            return stands

        return self._database.write(move, once=True)

    def brake_history(self, limit: int) -> tuple[BrakeState, ...]:
        """The last states."""
        rows = self._database.read(lambda connection: connection.execute(_newest(limit)).all())
        return tuple(_state(row) for row in reversed(rows))

    def close(self) -> None:
        """Close the pooled connections."""
        self._database.close()


def _newest_first(connection: Connection) -> Iterator[BrakeState]:
    """The states after each move, read as far as they are taken: the first by itself."""
    older = None
    for limit in _PAGES:
        for row in connection.execute(_newest(limit, older)):
            older = row.number
            yield _state(row)


def _newest(limit: int, older: int | None = None) -> Select[Any]:
    rows = select(ledger_brake).order_by(_columns.number.desc()).limit(limit)
    return rows if older is None else rows.where(_columns.number < older)


def _state(row: Row[Any]) -> BrakeState:
    scope = read_word(Scope, row.scope)
    return BrakeState(
        scope=scope if is_known(scope) else Scope.ALL,  # what it holds beyond is not known
        by=row.by,
        why=row.why,
        at=row.at,
        until=row.until,
        revision=row.number,
    )
