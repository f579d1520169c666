"""The brake as a table of the ledger's database: its last row is how it stands."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Row, insert, select

from angzarr.adapters.sql.brake_tables import ledger_brake
from angzarr.adapters.sql.ledger_database import LedgerDatabase
from angzarr.analysis.brake import Brake, BrakeState, Scope
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
        self, scope: Scope, *, by: str, why: str = "", until: datetime | None = None
    ) -> BrakeState:
        """Pull or release it."""
        state = BrakeState(scope=scope, by=by, why=why, at=self._clock.now(), until=until)
        row = {"scope": scope.value, "by": by, "why": why, "at": state.at, "until": until}
        self._database.write(lambda connection: connection.execute(insert(ledger_brake), row))
        return state

    def brake_history(self, limit: int) -> tuple[BrakeState, ...]:
        """Return how it stood."""
        wanted = select(ledger_brake).order_by(_columns.number.desc()).limit(limit)
        rows = self._database.read(lambda connection: connection.execute(wanted).all())
        return tuple(_state(row) for row in reversed(rows))

    def close(self) -> None:
        """Close the pooled connections."""
        self._database.close()


def _state(row: Row[Any]) -> BrakeState:
    return BrakeState(scope=Scope(row.scope), by=row.by, why=row.why, at=row.at, until=row.until)
