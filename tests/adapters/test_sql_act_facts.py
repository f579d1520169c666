"""Acts on the ledger and their facts, in SQLite and PostgreSQL."""

from __future__ import annotations

import pytest
from tests.adapters.sql_ledger import Both
from tests.adapters.sql_sides import OnPostgresql, OnSqlite
from tests.contracts.act_facts import ActFactsContract
from tests.contracts.facts import a_fact

from angzarr.adapters.sql.ledger.brake import SqlBrake
from angzarr.adapters.sql.ledger.fact_outbox import LedgerFactOutbox, put_facts
from angzarr.adapters.sql.replay_jobs.store import SqlReplayJobs
from angzarr.facts.fact_text import fact_from_text


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
    def test_a_fact_whose_transaction_ends_late_is_moved_all_the_same(self, database, outbox):
        """Its number is lower than that of a fact which was moved before."""
        database.prepare()
        with database.engine.begin() as late:
            put_facts(late, [a_fact("late")])
            database.write(lambda connection: put_facts(connection, [a_fact("early")]))
            (early,) = outbox.read(10)
            outbox.remove([early.place])
            assert outbox.read(10) == []
        (moved,) = outbox.read(10)
        assert fact_from_text(moved.text) == a_fact("late")
        assert int(moved.place) < int(early.place)
