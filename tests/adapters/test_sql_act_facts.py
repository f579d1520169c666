"""Acts on the ledger and their facts, in SQLite and PostgreSQL."""

from __future__ import annotations

import pytest
from tests.adapters.sql_ledger import Both
from tests.adapters.sql_sides import OnPostgresql, OnSqlite
from tests.contracts.act_facts import ActFactsContract

from angzarr.adapters.sql.ledger.brake import SqlBrake
from angzarr.adapters.sql.ledger.fact_outbox import LedgerFactOutbox
from angzarr.adapters.sql.replay_jobs.store import SqlReplayJobs


class SqlActFactsContract(ActFactsContract):
    @pytest.fixture
    def ledger(self, database, clock):
        return Both(database, clock)

    @pytest.fixture
    def jobs(self, database, clock):
        return SqlReplayJobs(database, clock)

    @pytest.fixture
    def brake(self, database, clock):
        return SqlBrake(database, clock)

    @pytest.fixture
    def outbox(self, database):
        return LedgerFactOutbox(database)


class TestSqliteActFacts(OnSqlite, SqlActFactsContract):
    pass


class TestPostgresqlActFacts(OnPostgresql, SqlActFactsContract):
    pass
