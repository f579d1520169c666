"""Lanes on a PostgreSQL that is lost at the worst moment: all or nothing, and told as an outage."""

from __future__ import annotations

import re
from datetime import timedelta
from urllib.parse import urlsplit

import pytest
from sqlalchemy import inspect
from tests.adapters.lane_effects import Effects
from tests.contracts.waiting_events import AT, MANY, MINUTE, early_of, letter_of, new_lane, step_of
from tools.tcp_proxy import LossyProxy, unused_port

from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.ordering.checkpoints import SqlCheckpoints
from angzarr.adapters.sql.ordering.store import SqlLanes
from angzarr.errors import StoreUnavailable
from angzarr.ordering.lane import Elsewhere, Moved, ParkedInLane, Place

#: As it is sent; READ COMMITTED is another word.
COMMIT = b"COMMIT\0"


@pytest.fixture
def proxy(postgresql_url):
    place = urlsplit(postgresql_url)
    with LossyProxy(place.hostname, place.port) as proxy:
        yield proxy


@pytest.fixture
def engine(proxy, postgresql_url):
    url = re.sub(r"@[^/]+/", f"@127.0.0.1:{proxy.port}/", postgresql_url)
    engine = build_engine(url, timeout=timedelta(seconds=2))
    yield engine
    assert engine.pool.checkedout() == 0
    engine.dispose()


@pytest.fixture
def lanes(engine):
    return SqlLanes(engine)


@pytest.fixture
def effects(engine, unique_name):
    return Effects(engine, unique_name)


@pytest.fixture
def lane(lanes):
    lane = new_lane()
    assert lanes.look(lane) == Place(0)
    return lane


def counted(engine, lane):
    found = SqlCheckpoints(engine).get(lane.handler)
    return found.events_processed if found else 0


def test_a_move_whose_answer_is_lost_moves_and_counts_once(lanes, lane, proxy, engine):
    proxy.lose_replies(b"ordering_lanes")
    assert lanes.move(step_of(lane, 0)) == Moved(None)
    lanes.park(early_of(lane, 2), MANY)
    proxy.lose_replies(COMMIT)
    assert lanes.move(step_of(lane, 1)) == Moved(early_of(lane, 2))
    assert (lanes.look(lane), counted(engine, lane)) == (Place(2, waiting=1), 2)


def test_what_is_parked_though_the_answer_is_lost_counts_once(lanes, lane, proxy):
    proxy.lose_replies(COMMIT)
    assert lanes.park(early_of(lane, 1), MANY) == ParkedInLane()
    proxy.lose_replies(COMMIT)
    lanes.note(letter_of(lane, 0))
    proxy.lose_replies(COMMIT)
    lanes.released(early_of(lane, 1))
    assert lanes.look(lane) == Place(0, waiting=1)


def test_a_run_whose_commit_is_lost_is_an_outage_and_the_lane_knows_what_became_of_it(
    lanes, lane, proxy, effects, engine
):
    proxy.lose_replies(COMMIT)
    with pytest.raises(StoreUnavailable):
        lanes.run(step_of(lane, 0), lambda c: effects.write(c, 0))
    again = lanes.run(step_of(lane, 0), lambda c: effects.write(c, 1))
    assert (again, effects.written(), counted(engine, lane)) == (Elsewhere(1), [0], 1)


def test_a_run_whose_line_is_cut_before_its_commit_left_nothing(
    lanes, lane, proxy, effects, engine
):
    def work(connection):
        effects.write(connection, 0)
        proxy.cut()

    with pytest.raises(StoreUnavailable):
        lanes.run(step_of(lane, 0), work)
    proxy.mend()
    assert (lanes.look(lane), effects.written(), counted(engine, lane)) == (Place(0), [], 0)
    assert lanes.run(step_of(lane, 0), lambda c: effects.write(c, 0)) == Moved(None)


def test_every_verb_says_that_the_database_is_away(lanes, lane, proxy):
    proxy.cut()
    handler, step, early = lane.handler, step_of(lane, 0), early_of(lane, 1)

    def transact():
        with lanes.transaction():
            pass

    for verb in (
        lambda: lanes.look(lane), lambda: lanes.move(step), lambda: lanes.run(step, print),
        lambda: lanes.park(early, MANY), lambda: lanes.note(letter_of(lane, 0)),
        lambda: lanes.released(early), lambda: lanes.due([handler], AT, MINUTE, 9),
        lambda: lanes.gaps([handler], AT, 9), lambda: lanes.on_duty("a", MINUTE),
        lambda: lanes.places(handler, [lane.address]), lambda: lanes.summaries([handler]),
        lambda: lanes.waiting(handler), lambda: lanes.behind(["x"]),
        lambda: lanes.skip_to(lane, 3), lambda: lanes.reset(handler), transact,
    ):  # fmt: skip
        with pytest.raises(StoreUnavailable):
            verb()
    proxy.mend()
    assert lanes.look(lane) == Place(0)


def test_a_server_that_was_started_anew_is_no_outage_to_who_enters(lanes, lane, proxy, engine):
    for connection in [engine.connect() for _ in range(5)]:
        connection.close()  # all of them are in the pool now
    proxy.cut()
    proxy.mend()
    assert lanes.run(step_of(lane, 0), lambda _: None) == Moved(None)


def test_a_pool_that_has_no_connection_left_is_an_outage(postgresql_url, lane):
    engine = build_engine(postgresql_url, timeout=timedelta(milliseconds=100), pool_size=1)
    few = SqlLanes(engine)
    few.look(lane)
    taken = [engine.connect() for _ in range(3)]
    with pytest.raises(StoreUnavailable):
        few.run(step_of(lane, 0), print)
    for connection in taken:
        connection.close()
    assert few.run(step_of(lane, 0), lambda _: None) == Moved(None)
    engine.dispose()


def test_a_server_that_is_down_is_unavailable_and_the_password_stays_secret(lane):
    lanes = SqlLanes(build_engine(f"postgresql://u:s3cret@127.0.0.1:{unused_port()}/x"))
    for verb in (lambda: lanes.look(lane), lambda: lanes.run(step_of(lane, 0), print)):
        with pytest.raises(StoreUnavailable) as caught:
            verb()
        assert "s3cret" not in f"{caught.value} {caught.value.__cause__!r}"


def test_tables_come_with_the_first_step(tmp_path, lane):
    engine = build_engine(f"sqlite:///{tmp_path / 'lanes.db'}")
    SqlLanes(engine).look(lane)
    made = {"ordering_lanes", "ordering_waiting", "ordering_keepers", "projection_checkpoints"}
    assert made <= set(inspect(engine).get_table_names())
    engine.dispose()
