"""The brake as a table of the ledger's database: its last row is how it stands."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, Select, insert, select, text

from angzarr.adapters.sql.brake_tables import ledger_brake
from angzarr.adapters.sql.ledger_database import LedgerDatabase
from angzarr.analysis.brake import Brake, BrakeState, Scope, moved
from angzarr.clock import Clock, SystemClock

_columns = ledger_brake.c


class SqlBrake(Brake):
    """Rows are only ever added; safe to use from threads."""

    def __init__(self, database: LedgerDatabase, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()

    def state(self) -> BrakeState:
        """Return how it stands."""
        return next(iter(self.brake_history(1)), BrakeState())

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
            row = connection.execute(_newest(1)).one_or_none()
            before = _state(row) if row else BrakeState()
            state = moved(before, asked, now, seen)
            fields = asdict(state)
            del fields["revision"]
            made = insert(ledger_brake).values(fields).returning(_columns.number)
            return replace(state, revision=connection.execute(made).scalar_one())

        return self._database.write(move)

    def brake_history(self, limit: int) -> tuple[BrakeState, ...]:
        """Return how it stood."""
        rows = self._database.read(lambda connection: connection.execute(_newest(limit)).all())
        return tuple(_state(row) for row in reversed(rows))

    def close(self) -> None:
        """Close the pooled connections."""
        self._database.close()


def _newest(limit: int) -> Select[Any]:
    return select(ledger_brake).order_by(_columns.number.desc()).limit(limit)


def _state(row: Row[Any]) -> BrakeState:
    return BrakeState(
        scope=Scope(row.scope),
        by=row.by,
        why=row.why,
        at=row.at,
        until=row.until,
        revision=row.number,
    )
