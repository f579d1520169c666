from __future__ import annotations

import pytest
from sqlalchemy import event
from tests.adapters.sql_sides import OnPostgresql, OnSqlite
from tests.contracts.ledger import letter_of
from tests.contracts.peers import LATELY, PeersContract

from angzarr.adapters.sql.ledger.groups import SqlPeers
from angzarr.adapters.sql.ledger.store import SqlLedger


class SqlPeersContract(PeersContract):
    @pytest.fixture
    def ledger(self, database, clock):
        return SqlLedger(database, clock)

    @pytest.fixture
    def peers(self, database):
        return SqlPeers(database)


class TestSqlitePeers(OnSqlite, SqlPeersContract):
    def test_a_batch_is_one_statement_and_each_part_uses_an_index(self, peers, ledger, engine):
        ledger.add_failed_event(letter_of())
        asked = ["orders.sync", *(f"handler{number}" for number in range(99))]
        groups = [f"group{number}" for number in range(100)]
        said = []

        @event.listens_for(engine, "before_cursor_execute")
        def hear(_connection, _cursor, statement, parameters, *_rest):
            said.append((statement, parameters))

        peers.fared(asked, groups, LATELY)
        selects = [one for one in said if "ledger_entries" in one[0] and "SELECT" in one[0]]
        peers.fared(["orders.sync"], ["crm"], LATELY)
        ((statement, parameters),) = [one for one in said if one not in selects][-1:]
        with engine.connect() as connection:
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
            steps = [row.detail for row in plan if "ledger_entries" in row.detail]
        assert len([one for one in selects if "UNION" in one[0]]) == 1
        assert len(steps) == 2
        assert all("USING INDEX ledger_entries_by_" in step for step in steps)


class TestPostgresqlPeers(OnPostgresql, SqlPeersContract):
    pass
