from __future__ import annotations

import pytest
from sqlalchemy import delete
from tests.contracts.brake import BrakeContract

from angzarr.adapters.sql.brake import SqlBrake
from angzarr.adapters.sql.brake_tables import ledger_brake
from angzarr.adapters.sql.engine import build_engine
from angzarr.adapters.sql.ledger_database import LedgerDatabase


class TestSqliteBrake(BrakeContract):
    @pytest.fixture
    def brake(self, tmp_path, clock):
        database = LedgerDatabase(build_engine(f"sqlite:///{tmp_path / 'ledger.db'}"))
        yield SqlBrake(database, clock)
        database.close()


class TestPostgresqlBrake(BrakeContract):
    @pytest.fixture
    def brake(self, postgresql_url, clock):
        database = LedgerDatabase(build_engine(postgresql_url))
        database.write(lambda connection: connection.execute(delete(ledger_brake)))
        yield SqlBrake(database, clock)
        database.close()
