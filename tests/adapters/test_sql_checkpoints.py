from __future__ import annotations

import pytest
from tests.adapters.sql_sides import OnPostgresql, OnSqlite
from tests.contracts.checkpoints import CheckpointsContract

from angzarr.adapters.sql.ordering.checkpoints import SqlCheckpoints
from angzarr.adapters.sql.ordering.store import SqlLanes


class SqlCheckpointsContract(CheckpointsContract):
    @pytest.fixture
    def checkpoints(self, engine):
        return SqlCheckpoints(engine)

    @pytest.fixture
    def lanes(self, engine):
        return SqlLanes(engine)


class TestSqliteCheckpoints(OnSqlite, SqlCheckpointsContract):
    pass


class TestPostgresqlCheckpoints(OnPostgresql, SqlCheckpointsContract):
    pass
