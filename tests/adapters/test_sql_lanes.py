from __future__ import annotations

import pytest
from sqlalchemy import update
from tests.adapters.sql_sides import OnPostgresql, OnSqlite
from tests.contracts.lane_races import LaneRacesContract, SideBySideContract
from tests.contracts.lanes import LanesContract
from tests.contracts.waiting_events import AT, MANY, MINUTE, early_of, new_lane, step_of

from angzarr.adapters.sql.ordering.checkpoints import SqlCheckpoints
from angzarr.adapters.sql.ordering.store import SqlLanes
from angzarr.adapters.sql.ordering.tables import at, ordering_lanes
from angzarr.ordering.lane import Moved, Place
from hand_clock import HandClock


class SqlLanesContract(LaneRacesContract, LanesContract):
    @pytest.fixture
    def lanes(self, engine):
        return SqlLanes(engine, clock=HandClock())

    @pytest.fixture
    def checkpoints(self, engine):
        return SqlCheckpoints(engine)

    def test_what_a_lane_passed_by_that_was_miscounted_is_recalled(self, lanes, lane, engine):
        ahead = lane._replace(address=new_lane().address)
        for one in (early_of(lane, 1), early_of(lane, 2), early_of(ahead, 1)):
            lanes.park(one, MANY)
        here = at(ordering_lanes, lane)
        with engine.begin() as connection:
            connection.execute(update(ordering_lanes).where(*here).values(waiting=0))
        for sequence in (0, 1):
            assert lanes.move(step_of(lane, sequence)) == Moved(None)
        assert lanes.due([lane.handler], AT, MINUTE, 9) == []
        assert lanes.recall(["another.handler"], 9) == 0
        assert lanes.recall([lane.handler], 9) == 1
        assert lanes.look(lane) == Place(2, waiting=2)
        due = lanes.due([lane.handler], AT, MINUTE, 9)
        assert [(one.lane, one.sequence) for one in due] == [(lane, 1), (lane, 2)]
        assert lanes.recall([lane.handler], 9) == 0


class TestSqliteLanes(OnSqlite, SqlLanesContract):
    pass


class TestPostgresqlLanes(OnPostgresql, SideBySideContract, SqlLanesContract):
    pass
