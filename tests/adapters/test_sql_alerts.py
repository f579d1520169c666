from __future__ import annotations

import pytest
from tests.contracts.alerts import LEASE, AlertsContract, alert_of, sighting_of
from tools.tcp_proxy import unused_port

from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.ledger.alerts import SqlAlerts
from angzarr.adapters.sql.ledger.database import LedgerDatabase
from angzarr.adapters.sql.ledger.schema import ledger_alerts
from angzarr.errors import LedgerUnavailable


@pytest.fixture(scope="module")
def engine(postgresql_url):
    engine = build_engine(postgresql_url)
    yield engine
    engine.dispose()


class TestSqliteAlerts(AlertsContract):
    @pytest.fixture
    def url(self, tmp_path):
        return f"sqlite:///{tmp_path / 'ledger.db'}"

    @pytest.fixture
    def alerts(self, url, clock):
        alerts = SqlAlerts(LedgerDatabase(build_engine(url)), clock)
        yield alerts
        alerts.close()

    def test_what_a_dead_process_held_is_delivered_by_the_next(self, url, clock, alerts):
        alerts.raise_([sighting_of()])
        alerts.due("log", limit=9, lease=LEASE)
        alerts.close()
        clock.sleep(LEASE)
        again = SqlAlerts(LedgerDatabase(build_engine(url)), clock)
        (delivery,) = again.due("log", limit=9, lease=LEASE)
        assert delivery.alert == alert_of()
        again.close()

    def test_a_database_away_is_unavailable(self, clock):
        away = f"postgresql://postgres@127.0.0.1:{unused_port()}/x"
        alerts = SqlAlerts(LedgerDatabase(build_engine(away)), clock)
        for verb in (
            lambda: alerts.raise_([sighting_of()]),
            lambda: alerts.due("log", limit=1, lease=LEASE),
            alerts.get_alerts,
        ):
            with pytest.raises(LedgerUnavailable):
                verb()
        alerts.close()


class TestPostgresqlAlerts(AlertsContract):
    @pytest.fixture
    def alerts(self, engine, clock):
        ledger_alerts.metadata.drop_all(engine)
        return SqlAlerts(LedgerDatabase(engine), clock)
