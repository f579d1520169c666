from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import func, select
from tests.adapters.sql_sides import OnPostgresql, OnSqlite
from tests.contracts.writes import DAY, DONE, WritesContract

from angzarr.adapters.sql.ledger.schema import remembered_writes
from angzarr.adapters.sql.ledger.writes import SqlWrites
from angzarr.analysis.ledger.idempotent_requests import WriteKey


class SqlWritesContract(WritesContract):
    @pytest.fixture
    def writes(self, database, clock):
        return SqlWrites(database, clock)

    def test_what_is_no_longer_kept_is_deleted(self, engine, writes, clock):
        for number in range(3):
            writes.begin(WriteKey("ada", f"k{number}"), "f", "t")
            writes.finish(WriteKey("ada", f"k{number}"), "t", DONE, keep=DAY)
        clock.sleep(DAY + timedelta(seconds=1))
        writes.begin(WriteKey("ada", "new"), "f", "t")
        with engine.connect() as connection:
            left = connection.scalar(select(func.count()).select_from(remembered_writes))
        assert left == 1


class TestSqliteWrites(OnSqlite, SqlWritesContract):
    pass


class TestPostgresqlWrites(OnPostgresql, SqlWritesContract):
    pass
