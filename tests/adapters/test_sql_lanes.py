from __future__ import annotations

import time
from datetime import timedelta

import pytest
from tests.contracts.lane_races import LaneRacesContract, SideBySideContract
from tests.contracts.lanes import LanesContract

from angzarr.adapters.sql.checkpoints import SqlCheckpoints
from angzarr.adapters.sql.engine import build_engine
from angzarr.adapters.sql.lanes import SqlLanes
from hand_clock import HandClock

PATIENT = timedelta(seconds=30)


class OnSql(LaneRacesContract, LanesContract):
    """Subclasses give the `url`."""

    @pytest.fixture
    def let_pass(self):
        return lambda span: time.sleep(span.total_seconds() + 0.005)

    @pytest.fixture
    def engine(self, url):
        engine = build_engine(url, timeout=PATIENT)
        yield engine
        engine.dispose()

    @pytest.fixture
    def lanes(self, engine):
        return SqlLanes(engine, clock=HandClock())

    @pytest.fixture
    def checkpoints(self, engine):
        return SqlCheckpoints(engine)


class TestSqliteLanes(OnSql):
    @pytest.fixture
    def url(self, tmp_path):
        return f"sqlite:///{tmp_path / 'lanes.db'}"


class TestPostgresqlLanes(SideBySideContract, OnSql):
    @pytest.fixture
    def url(self, postgresql_url):
        return postgresql_url
