"""Random histories with crashes over lanes and read models in real databases."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.order_model.broker import POINTS
from tests.order_model.runs import run

from angzarr.adapters.sql.engine.engine import build_engine

#: Histories in CI; `make bench ONLY=projection_model_runs` plays a thousand.
RUNS = 60


class OnSql:
    """Subclasses give the `url`."""

    @pytest.fixture
    def engine(self, url):
        engine = build_engine(url)
        yield engine
        engine.dispose()

    def test_effects_are_there_once_and_in_order_wherever_workers_die(self, engine):
        deaths, parked = Counter(), 0
        for seed in range(RUNS):
            broker = run(engine, seed)
            deaths.update(broker.deaths)
            parked += broker.parked
        assert set(deaths) == set(POINTS), "somebody must have died after each of the steps"
        assert parked > RUNS

    def test_plain_handlers_begin_no_event_before_the_one_before_it_is_done(self, engine):
        deaths = Counter()
        for seed in range(RUNS // 2):
            deaths.update(run(engine, seed, transactional=False).deaths)
        assert sum(deaths.values()) > RUNS


class TestSqliteOrder(OnSql):
    @pytest.fixture
    def url(self, tmp_path):
        return f"sqlite:///{tmp_path / 'order.db'}"


class TestPostgresqlOrder(OnSql):
    @pytest.fixture
    def url(self, postgresql_url):
        return postgresql_url
