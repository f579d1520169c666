"""Random histories with crashes over lanes and read models in real databases."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.adapters.sql_sides import OnPostgresql, OnSqlite
from tests.order_model.broker import POINTS
from tests.order_model.runs import run

from endurance import longer

#: Histories; `make bench ONLY=projection_model_runs` plays a thousand.
RUNS = longer(20, 60)


@pytest.mark.longer
class OrderModelContract:
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


class TestSqliteOrder(OnSqlite, OrderModelContract):
    pass


class TestPostgresqlOrder(OnPostgresql, OrderModelContract):
    pass
