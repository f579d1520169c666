from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import delete, func, select
from tests.contracts.writes import DAY, DONE, WritesContract

from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.ledger.database import LedgerDatabase
from angzarr.adapters.sql.ledger.schema import remembered_writes
from angzarr.adapters.sql.ledger.writes import SqlWrites
from angzarr.analysis.ledger.idempotent_requests import WriteKey
from angzarr.errors import LedgerUnavailable


class TestSqliteWrites(WritesContract):
    @pytest.fixture
    def engine(self, tmp_path):
        engine = build_engine(f"sqlite:///{tmp_path / 'ledger.db'}")
        yield engine
        engine.dispose()

    @pytest.fixture
    def writes(self, engine, clock):
        return SqlWrites(LedgerDatabase(engine), clock)

    def test_what_is_no_longer_kept_is_deleted(self, engine, writes, clock):
        for number in range(3):
            writes.begin(WriteKey("ada", f"k{number}"), "f", "t")
            writes.finish(WriteKey("ada", f"k{number}"), "t", DONE, keep=DAY)
        clock.sleep(DAY + timedelta(seconds=1))
        writes.begin(WriteKey("ada", "new"), "f", "t")
        with engine.connect() as connection:
            left = connection.scalar(select(func.count()).select_from(remembered_writes))
        assert left == 1

    def test_a_database_that_cannot_be_opened_is_unavailable(self, tmp_path):
        writes = SqlWrites(
            LedgerDatabase(build_engine(f"sqlite:///{tmp_path / 'no folder' / 'x.db'}"))
        )
        with pytest.raises(LedgerUnavailable):
            writes.begin(WriteKey("ada", "k"), "f", "t")
        writes.close()


@pytest.fixture(scope="module")
def postgresql_engine(postgresql_url):
    engine = build_engine(postgresql_url)
    yield engine
    engine.dispose()


class TestPostgresqlWrites(WritesContract):
    @pytest.fixture
    def writes(self, postgresql_engine, clock):
        database = LedgerDatabase(postgresql_engine)
        database.write(lambda connection: connection.execute(delete(remembered_writes)))
        return SqlWrites(database, clock)
