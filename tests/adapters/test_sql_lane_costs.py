"""What lanes cost an ordinary event on PostgreSQL, in round trips."""

from __future__ import annotations

import re
from contextlib import closing
from urllib.parse import urlsplit

import pytest
from sqlalchemy import event, text
from tests.adapters.counting_proxy import CountingProxy
from tests.contracts.waiting_events import AT, MANY, MINUTE, early_of, new_lane, step_of

from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.ordering.store import SqlLanes
from angzarr.ordering.lane import Lane, Moved

#: After so many a driver has prepared its statements, and asks no more about them.
WARM = 12


@pytest.fixture
def proxy(postgresql_url):
    place = urlsplit(postgresql_url)
    with CountingProxy(place.hostname, place.port) as proxy:
        yield proxy


@pytest.fixture
def engine(proxy, postgresql_url):
    url = re.sub(r"@[^/]+/", f"@127.0.0.1:{proxy.port}/", postgresql_url)
    engine = build_engine(url)
    yield engine
    engine.dispose()


@pytest.fixture
def lanes(engine):
    return SqlLanes(engine)


@pytest.fixture
def lane(lanes) -> Lane:
    """A lane that has moved for a while, and is at `WARM`."""
    lane = new_lane()
    for sequence in range(WARM):
        assert lanes.look(lane).next_sequence == sequence
        if sequence % 2:
            lanes.run(step_of(lane, sequence), lambda _: None)
        else:
            lanes.move(step_of(lane, sequence))
        lanes.move(step_of(new_lane(), 0))
    return lane


def test_a_look_is_one_round_trip(lanes, lane, proxy):
    with proxy.counted() as trips:
        lanes.look(lane)
        lanes.look(new_lane())
    assert len(trips) == 2


def test_a_move_and_its_count_are_one_round_trip(lanes, lane, proxy):
    with proxy.counted() as trips:
        assert lanes.move(step_of(lane, WARM)) == Moved(None)
        assert lanes.move(step_of(new_lane(), 0)) == Moved(None)
    assert len(trips) == 2


def test_a_run_costs_its_begin_its_gate_its_move_and_its_commit(lanes, lane, proxy):
    with proxy.counted() as trips:
        assert lanes.run(step_of(lane, WARM), lambda _: None) == Moved(None)
    assert len(trips) == 4
    with proxy.counted() as trips, closing(lanes.enter(lane)) as entered:
        assert entered.run(step_of(lane, WARM + 1), lambda _: None) == Moved(None)
    assert len(trips) == 4, "the look goes with its gate"
    question = text("SELECT 1")
    with proxy.counted() as trips:
        lanes.run(step_of(lane, WARM + 2), lambda connection: connection.execute(question))
    assert len(trips) == 5


def test_the_count_is_the_last_that_is_written_before_the_commit(lanes, lane, engine):
    lanes.park(early_of(lane, WARM + 1), MANY)
    said = []

    @event.listens_for(engine, "before_cursor_execute")
    def before(_connection, _cursor, statement, *_):
        said.append(statement)

    assert lanes.run(step_of(lane, WARM), lambda _: None) == Moved(early_of(lane, WARM + 1))
    assert ["projection_checkpoints" in one for one in said[1:]] == [False] * (len(said) - 2) + [
        True
    ]


def test_keepers_that_find_nothing_ask_once(lanes, lane, proxy):
    for _ in range(WARM):
        lanes.due([lane.handler], AT, MINUTE, 9)
        lanes.on_duty("a", MINUTE, of=[lane.handler])
    with proxy.counted() as trips:
        assert lanes.due([lane.handler], AT, MINUTE, 9) == []
        assert lanes.on_duty("a", MINUTE, of=[lane.handler])
    assert len(trips) == 2
