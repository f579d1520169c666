from __future__ import annotations

import pytest
from sqlalchemy import insert
from tests.adapters.sql_sides import OnPostgresql, OnSqlite
from tests.contracts.brake import BrakeContract

from angzarr.adapters.sql.ledger.brake import SqlBrake
from angzarr.adapters.sql.ledger.schema import ledger_brake
from angzarr.analysis.ledger.emergency_stop import MOST_PULLS, Scope


class SqlBrakeContract(BrakeContract):
    """The suite, and what rows bring about."""

    @pytest.fixture
    def brake(self, database, clock):
        return SqlBrake(database, clock)

    @pytest.mark.parametrize(("followed", "first"), [(MOST_PULLS - 1, 0), (MOST_PULLS + 10, 11)])
    def test_it_reads_as_many_pulls_as_are_looked_at(self, brake, database, followed, first):
        brake.put(Scope.ALL, by="0")
        began = brake.state().at
        pulls = [
            {"scope": "all", "by": str(one), "why": "", "at": began, "until": None}
            for one in range(1, followed + 1)
        ]
        database.write(lambda connection: connection.execute(insert(ledger_brake), pulls))
        state = brake.state()
        assert (state.first.by, state.earlier) == (str(first), first > 0)


class TestSqliteBrake(OnSqlite, SqlBrakeContract):
    pass


class TestPostgresqlBrake(OnPostgresql, SqlBrakeContract):
    pass
