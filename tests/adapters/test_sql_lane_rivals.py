"""Two transactions at one lane on PostgreSQL, one amid the other: what the first wrote is seen."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import timedelta

import pytest
from sqlalchemy import select, text
from tests.contracts.waiting_events import (
    AT,
    MANY,
    MINUTE,
    early_of,
    letter_of,
    new_lane,
    step_of,
)
from tools.polling import wait_until

from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.ordering import runs as gate
from angzarr.adapters.sql.ordering import waiting_events
from angzarr.adapters.sql.ordering.checkpoints import SqlCheckpoints
from angzarr.adapters.sql.ordering.moves import LaneMoves
from angzarr.adapters.sql.ordering.store import SqlLanes
from angzarr.adapters.sql.ordering.tables import by_key
from angzarr.errors import StoreUnavailable
from angzarr.ordering.lane import Elsewhere, Moved, ParkedInLane, Place, Ready


@pytest.fixture
def engine(postgresql_url):
    engine = build_engine(postgresql_url)
    yield engine
    engine.dispose()


@pytest.fixture
def lanes(engine):
    lanes = SqlLanes(engine)
    lanes.look(new_lane())
    return lanes


@pytest.fixture
def moving(engine):
    return LaneMoves(engine)


@pytest.fixture(params=[0, 3], ids=["a new lane", "a lane that has moved"])
def lane(request, lanes):
    lane = new_lane()
    for sequence in range(request.param):
        lanes.move(step_of(lane, sequence))
    return lane


@pytest.fixture
def at(lanes, lane):
    """Where the lane is."""
    return lanes.look(lane).next_sequence


@pytest.fixture
def amid(engine, lanes):
    """Call a function once what is written in the block, but not committed, makes it wait."""

    @contextmanager
    def amid(call):
        answers = []
        with ThreadPoolExecutor(1) as pool:
            with engine.begin() as connection:
                yield connection, answers
                me = connection.scalar(text("SELECT pg_backend_pid()"))
                running = pool.submit(call)
                wait_until(lambda: running.done() or waits_for(engine, me), "it waits for us")
                assert not running.done()
            answers.append(running.result())

    return amid


def waits_for(engine, pid):
    waiting = text("SELECT 1 FROM pg_stat_activity WHERE :pid = ANY(pg_blocking_pids(pid))")
    with engine.connect() as connection:
        return connection.execute(waiting, {"pid": pid}).first()


@pytest.mark.parametrize("verb", ["move", "run"])
def test_who_moves_while_the_next_is_being_parked_hands_it_out(lanes, lane, at, moving, amid, verb):
    early = early_of(lane, at + 1)

    def move():
        step = step_of(lane, at)
        return lanes.move(step) if verb == "move" else lanes.run(step, lambda _: None)

    with amid(move) as (connection, answers):
        assert waiting_events.park(connection, moving, early, MANY) == ParkedInLane()
    assert answers == [Moved(early)]
    assert lanes.look(lane) == Place(at + 1, waiting=1)


def test_who_parks_while_the_lane_is_moved_there_is_told(lanes, lane, at, moving, amid):
    with amid(lambda: lanes.park(early_of(lane, at + 1), MANY)) as (connection, answers):
        assert moving.move(connection, step_of(lane, at)) == Moved(None)
    assert answers == [Ready(at + 1)]
    assert lanes.look(lane) == Place(at + 1)


def test_who_moves_while_its_event_is_noted_forgets_it(lanes, lane, at, moving, amid):
    with amid(lambda: lanes.move(step_of(lane, at))) as (connection, answers):
        waiting_events.note(connection, moving, letter_of(lane, at), claimed=True)
    assert answers == [Moved(None)]
    assert lanes.look(lane) == Place(at + 1)


def test_who_moves_while_another_does_is_told_the_same(lanes, lane, at, moving, amid, engine):
    with amid(lambda: lanes.move(step_of(lane, at))) as (connection, answers):
        moving.move(connection, step_of(lane, at))
    assert answers == [Moved(None)]
    assert SqlCheckpoints(engine).get(lane.handler).events_processed == at + 1


def test_who_runs_while_another_does_is_undone(lanes, lane, at, moving, amid, engine):
    with amid(lambda: lanes.run(step_of(lane, at), lambda _: None)) as (connection, answers):
        moving.move(connection, step_of(lane, at))
    assert answers == [Elsewhere(at + 1)]
    assert SqlCheckpoints(engine).get(lane.handler).events_processed == at + 1


def test_who_parks_the_last_that_may_be_parked_is_waited_for(lanes, lane, at, moving, amid):
    with amid(lambda: lanes.park(early_of(lane, at + 2), 1)) as (connection, answers):
        waiting_events.park(connection, moving, early_of(lane, at + 1), 1)
    assert answers[0].parked == 1


def test_a_reset_waits_for_who_moves_and_undoes_that_as_well(lanes, moving, amid, engine):
    lane = new_lane()
    lanes.move(step_of(lane, 0))
    lanes.park(early_of(lane, 2), MANY)
    for step in (step_of(lane, 1), step_of(lane, 2)):  # the last takes what waits, and leaves none
        with amid(lambda: lanes.reset(lane.handler)) as (connection, answers):
            moving.move(connection, step)
        assert answers == [1]
        if step.sequence == 1:
            assert lanes.look(lane) == Place(0, waiting=1)
            assert lanes.due([lane.handler], AT, MINUTE, 9) == []
            lanes.move(step_of(lane, 0))
            lanes.move(step_of(lane, 1))
    assert lanes.look(lane) == Place(0)
    assert SqlCheckpoints(engine).get(lane.handler) is None
    assert lanes.reset(lane.handler) == 0, "no lane is left in which nothing waits"


def test_a_reset_waits_for_who_parks_and_keeps_that(lanes, moving, amid):
    lane = new_lane()
    lanes.move(step_of(lane, 0))
    early = early_of(lane, 4)
    with amid(lambda: lanes.reset(lane.handler)) as (connection, answers):
        waiting_events.park(connection, moving, early, MANY)
    assert answers == [1]
    assert lanes.look(lane) == Place(0, waiting=1)
    assert lanes.waiting(lane.handler) == [early]


def test_who_moves_while_all_is_reset_is_told_that_it_begins_anew(lanes, amid):
    lane = new_lane()
    lanes.move(step_of(lane, 0))
    with amid(lambda: lanes.move(step_of(lane, 1))) as (connection, answers):
        waiting_events.reset(connection, lane.handler)
    assert answers == [Elsewhere(0)]
    assert lanes.look(lane) == Place(0)


def let_in(connection, handler):
    return connection.scalar(select(gate.LETS_IN), gate.keys_of(handler))


def test_a_reset_waits_for_a_run_that_has_written_nothing_yet(lanes, engine, amid):
    fresh = new_lane()
    with amid(lambda: lanes.reset(fresh.handler)) as (connection, answers):
        assert let_in(connection, fresh.handler)
    assert answers == [0]


def test_a_run_does_not_overtake_who_waits_to_replace_its_read_model(lanes, engine):
    lane = new_lane()
    with ThreadPoolExecutor(1) as pool:
        with engine.begin() as connection:
            assert let_in(connection, lane.handler)
            assert lanes.run(step_of(lane, 0), lambda _: None) == Moved(None), "runs share it"
            me = connection.scalar(text("SELECT pg_backend_pid()"))
            resetting = pool.submit(lanes.reset, lane.handler)
            wait_until(lambda: waits_for(engine, me), "it waits for us")
            with pytest.raises(StoreUnavailable, match="just being replaced"):
                lanes.run(step_of(lane, 1), lambda _: None)
        assert resetting.result() == 1


def test_nobody_enters_while_a_read_model_is_replaced(lanes, engine):
    lane = new_lane()
    with engine.begin() as connection:
        gate.shut(connection, lane.handler)
        assert lanes.enter(lane) is None
        with closing(lanes.enter(new_lane())) as other:
            assert other.place == Place(0)
    assert engine.pool.checkedout() == 0
    with closing(lanes.enter(lane)) as entered:
        assert entered.run(step_of(lane, 0), lambda _: None) == Moved(None)


def test_runs_queue_up_between_batches_in_place_and_batches_behind_runs(lanes, engine, amid):
    lane = new_lane()
    with amid(lambda: lanes.run(step_of(lane, 0), lambda _: None)) as (connection, answers):
        gate.pause(connection, lane.handler)
    assert answers == [Moved(None)]

    def batch():
        with engine.begin() as connection:
            gate.pause(connection, lane.handler)
            return lanes.look(lane)

    with amid(batch) as (connection, answers):
        assert let_in(connection, lane.handler)
    assert answers == [Place(1)]


def test_who_waits_too_long_for_a_batch_comes_again_later(lanes, engine, postgresql_url):
    lane, hasty = new_lane(), build_engine(postgresql_url, timeout=timedelta(milliseconds=200))
    with closing(SqlLanes(hasty)) as others, engine.begin() as connection:
        gate.pause(connection, lane.handler)
        assert others.enter(lane) is None
        assert hasty.pool.checkedout() == 0


def test_who_entered_and_leaves_gives_its_connection_back(lanes, engine):
    lane = new_lane()
    entered = lanes.enter(lane)
    assert engine.pool.checkedout() == 1
    for _ in range(2):
        entered.close()
    assert (engine.pool.checkedout(), lanes.look(lane)) == (0, Place(0))


def test_what_is_just_being_lent_is_passed_over(lanes, engine):
    lane = new_lane()
    other = lane._replace(address=new_lane().address)
    for one in (lane, other):
        lanes.park(early_of(one, 1), MANY)
    lanes.move(step_of(lane, 0))
    keys = by_key([lane.handler])
    with engine.begin() as connection:
        lent = waiting_events.lend(connection, keys, AT, MINUTE, 9)
        lanes.move(step_of(other, 0))
        assert lanes.due([lane.handler], AT, MINUTE, 9) == [early_of(other, 1)]
    assert lent == [early_of(lane, 1)]
    assert lanes.due([lane.handler], AT, MINUTE, 9) == []


def test_who_counts_waits_for_nobody_who_counts_elsewhere(lanes, moving, engine, monkeypatch):
    lane = new_lane()
    other = lane._replace(address=new_lane().address)
    slots = iter([1, 2])
    monkeypatch.setattr("angzarr.adapters.sql.ordering.checkpoints.slot", lambda: next(slots))
    with engine.begin() as connection:
        moving.move(connection, step_of(lane, 0))
        assert lanes.move(step_of(other, 0)) == Moved(None)
    assert SqlCheckpoints(engine).get(lane.handler).events_processed == 2
