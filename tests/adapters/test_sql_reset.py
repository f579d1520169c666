"""A reset empties a read model and moves lanes back in one transaction."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, delete, func, insert, select

from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.ordering.checkpoints import SqlCheckpoints
from angzarr.adapters.sql.ordering.store import SqlLanes
from angzarr.aggregates.book import Address
from angzarr.ordering.lane import Lane, Step

NOW = datetime(2026, 3, 1, tzinfo=UTC)


class OnSql:
    """Subclasses give the `url`."""

    @pytest.fixture
    def table(self):
        name = f"sales_{uuid4().hex[:12]}"
        return Table(name, MetaData(), Column("total", Integer, primary_key=True))

    @pytest.fixture
    def lane(self):
        return Lane(f"projection.{uuid4()}", Address("order", "o-1"))

    @pytest.fixture
    def engine(self, url, table, lane):
        engine = build_engine(url)
        table.create(engine)
        step = Step(lane, 0, "e-0", "OrderPlaced", NOW, NOW)
        SqlLanes(engine).run(step, lambda c: c.execute(insert(table).values(total=1)))
        yield engine
        table.drop(engine)
        engine.dispose()

    def rows(self, engine, table):
        with engine.connect() as connection:
            return connection.scalar(select(func.count()).select_from(table))

    def test_both_are_done(self, engine, lane, table):
        lanes = SqlLanes(engine)
        assert lanes.reset(lane.handler, lambda c: c.execute(delete(table))) == 1
        assert lanes.look(lane).next_sequence == 0
        assert SqlCheckpoints(engine).get(lane.handler) is None
        assert self.rows(engine, table) == 0

    def test_or_neither_is(self, engine, lane, table):
        lanes = SqlLanes(engine)

        def fail(connection):
            connection.execute(delete(table))
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            lanes.reset(lane.handler, fail)
        assert lanes.look(lane).next_sequence == 1
        assert SqlCheckpoints(engine).get(lane.handler).events_processed == 1
        assert self.rows(engine, table) == 1


class TestSqliteReset(OnSql):
    @pytest.fixture
    def url(self, tmp_path):
        return f"sqlite:///{tmp_path / 'sales.db'}"


class TestPostgresqlReset(OnSql):
    @pytest.fixture
    def url(self, postgresql_url):
        return postgresql_url
