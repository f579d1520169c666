from __future__ import annotations

import pytest
from tests.adapters.sql_sides import OnPostgresql, OnSqlite
from tests.contracts.alerts import LEASE, AlertsContract, alert_of, sighting_of

from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.ledger.alerts import SqlAlerts
from angzarr.adapters.sql.ledger.database import LedgerDatabase


class SqlAlertsContract(AlertsContract):
    @pytest.fixture
    def alerts(self, database, clock):
        return SqlAlerts(database, clock)


class TestSqliteAlerts(OnSqlite, SqlAlertsContract):
    def test_what_a_dead_process_held_is_delivered_by_the_next(self, url, clock, alerts):
        alerts.raise_([sighting_of()])
        alerts.due("log", limit=9, lease=LEASE)
        alerts.close()
        clock.sleep(LEASE)
        again = SqlAlerts(LedgerDatabase(build_engine(url)), clock)
        (delivery,) = again.due("log", limit=9, lease=LEASE)
        assert delivery.alert == alert_of()
        again.close()


class TestPostgresqlAlerts(OnPostgresql, SqlAlertsContract):
    pass
