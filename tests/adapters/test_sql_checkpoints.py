from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import inspect
from tests.contracts.checkpoints import CheckpointsContract
from tools.tcp_proxy import unused_port

from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.ordering.checkpoints import SqlCheckpoints
from angzarr.adapters.sql.ordering.store import SqlLanes
from angzarr.errors import StoreUnavailable

PATIENT = timedelta(seconds=30)


class OnSql(CheckpointsContract):
    """Subclasses give the `url`."""

    @pytest.fixture
    def engine(self, url):
        engine = build_engine(url, timeout=PATIENT)
        yield engine
        engine.dispose()

    @pytest.fixture
    def checkpoints(self, engine):
        return SqlCheckpoints(engine)

    @pytest.fixture
    def lanes(self, engine):
        return SqlLanes(engine)


class TestSqliteCheckpoints(OnSql):
    @pytest.fixture
    def url(self, tmp_path):
        return f"sqlite:///{tmp_path / 'lanes.db'}"


class TestPostgresqlCheckpoints(OnSql):
    @pytest.fixture
    def url(self, postgresql_url):
        return postgresql_url


def test_a_server_that_is_down_is_unavailable_and_the_password_stays_secret():
    checkpoints = SqlCheckpoints(build_engine(f"postgresql://u:s3cret@127.0.0.1:{unused_port()}/x"))
    for verb in (checkpoints.get, checkpoints.by_type, checkpoints.reset):
        with pytest.raises(StoreUnavailable) as caught:
            verb("p")
        assert "s3cret" not in f"{caught.value} {caught.value.__cause__!r}"


def test_tables_come_with_the_first_step(tmp_path):
    engine = build_engine(f"sqlite:///{tmp_path / 'lanes.db'}")
    assert SqlCheckpoints(engine).get("p") is None
    assert "projection_checkpoints" in inspect(engine).get_table_names()
    engine.dispose()
