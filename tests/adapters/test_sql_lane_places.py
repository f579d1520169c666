"""The places of lanes are sought one by one, however many lanes the handler has."""

from __future__ import annotations

import pytest
from sqlalchemy import event

from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.ordering.store import SqlLanes
from angzarr.aggregates.book import Address


@pytest.fixture
def engine(tmp_path):
    engine = build_engine(f"sqlite:///{tmp_path / 'lanes.db'}")
    yield engine
    engine.dispose()


def test_sqlite_reads_no_lane_that_was_not_asked_for(engine):
    lanes = SqlLanes(engine)
    addresses = [Address("order", f"o-{number}") for number in range(9)]
    lanes.places("shop.ship", addresses)  # the tables are looked for once
    asked = []

    def hear(_connection, _cursor, statement, parameters, *_rest):
        asked.append((statement, parameters))

    event.listen(engine, "before_cursor_execute", hear)
    lanes.places("shop.ship", addresses)
    event.remove(engine, "before_cursor_execute", hear)
    (question,) = [one for one in asked if "ordering_lanes" in one[0]]
    with engine.connect() as connection:
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {question[0]}", question[1])
        steps = [one.detail for one in plan]
    assert [step for step in steps if "(handler=? AND domain=? AND root=? AND edition=?)" in step]
    assert not [step for step in steps if step.startswith("SCAN ordering_lanes")]
