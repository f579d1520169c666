"""Runs in SQL: a read model and its lane move together, or neither does."""

from __future__ import annotations

import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError, ProgrammingError
from tests.adapters.lane_effects import Effects
from tests.contracts.waiting_events import MANY, early_of, new_lane, step_of
from tools.polling import wait_until

from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.ordering.checkpoints import SqlCheckpoints
from angzarr.adapters.sql.ordering.store import SqlLanes
from angzarr.errors import ConfigurationError, StoreUnavailable
from angzarr.ordering.lane import Elsewhere, Moved, Place

PATIENT = timedelta(seconds=30)
NOT_THERE = text("SELECT * FROM not_there")


class OnSql:
    """Subclasses give the `url`."""

    @pytest.fixture
    def engine(self, url):
        engine = build_engine(url, timeout=PATIENT)
        yield engine
        assert engine.pool.checkedout() == 0
        engine.dispose()

    @pytest.fixture
    def lanes(self, engine):
        return SqlLanes(engine)

    @pytest.fixture
    def effects(self, engine, unique_name):
        return Effects(engine, unique_name)

    @pytest.fixture
    def lane(self):
        return new_lane()

    @pytest.fixture
    def nothing_happened(self, lanes, lane, effects, engine):
        """Tell that a run left nothing, and that the next one is none the worse for it."""

        def check():
            assert (lanes.look(lane), effects.written()) == (Place(0), [])
            assert SqlCheckpoints(engine).get(lane.handler) is None
            answer = lanes.run(step_of(lane, 0), lambda c: effects.write(c, 0))
            assert (answer, effects.written()) == (Moved(None), [0])

        return check

    def test_what_a_run_wrote_is_there_when_its_lane_moved(self, lanes, lane, effects):
        lanes.park(early_of(lane, 1), MANY)
        step = step_of(lane, 0)
        assert lanes.run(step, lambda c: effects.write(c, 0)) == Moved(early_of(lane, 1))
        assert lanes.run(step_of(lane, 1), lambda c: effects.write(c, 1)) == Moved(None)
        assert effects.written() == [0, 1]

    def test_nothing_is_seen_of_a_run_before_it_is_done(self, lanes, lane, effects):
        seen = []

        def work(connection):
            effects.write(connection, 0)
            seen.append((effects.written(), lanes.look(lane)))

        lanes.run(step_of(lane, 0), work)
        assert seen == [([], Place(0))]

    @pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), SystemExit(3)])
    def test_what_a_run_raises_undoes_what_it_wrote(
        self, lanes, lane, effects, nothing_happened, error
    ):
        def work(connection):
            effects.write(connection, 0)
            raise error

        with pytest.raises(type(error)) as caught:
            lanes.run(step_of(lane, 0), work)
        assert caught.value is error
        nothing_happened()

    def test_a_run_whose_lane_is_elsewhere_is_undone(self, lanes, lane, effects):
        lanes.move(step_of(lane, 0))
        for sequence in (0, 2):
            answer = lanes.run(step_of(lane, sequence), lambda c: effects.write(c, 7))
            assert answer == Elsewhere(1)
        assert effects.written() == []

    def test_of_runs_of_one_event_at_once_the_effects_of_one_stay(self, lanes, lane, effects):
        numbers = iter(range(100))
        lock = threading.Lock()

        def work(connection):
            with lock:
                number = next(numbers)
            effects.write(connection, number)

        with ThreadPoolExecutor(6) as pool:
            answers = list(pool.map(lambda _: lanes.run(step_of(lane, 0), work), range(12)))
        assert sorted(answers, key=str) == [Elsewhere(1)] * 11 + [Moved(None)]
        assert len(effects.written()) == 1

    def test_a_mistake_of_the_work_is_no_outage(self, lanes, lane, effects, nothing_happened):
        def twice(connection):
            effects.write(connection, 0)
            effects.write(connection, 0)

        def without_a_table(connection):
            effects.write(connection, 0)
            connection.execute(NOT_THERE)

        with pytest.raises(IntegrityError):
            lanes.run(step_of(lane, 0), twice)
        with pytest.raises((ProgrammingError, OperationalError), match="not_there"):
            lanes.run(step_of(lane, 0), without_a_table)
        nothing_happened()

    def test_what_the_database_refuses_at_the_commit_is_the_works_mistake(
        self, lanes, lane, effects, nothing_happened
    ):
        with pytest.raises(IntegrityError):
            lanes.run(step_of(lane, 0), lambda c: effects.write(c, 0, before=9))
        nothing_happened()

    def test_a_savepoint_may_be_undone(self, lanes, lane, effects):
        def work(connection):
            effects.write(connection, 0)
            with pytest.raises(IntegrityError), connection.begin_nested():
                effects.write(connection, 0)

        assert lanes.run(step_of(lane, 0), work) == Moved(None)
        assert effects.written() == [0]

    @pytest.mark.parametrize("end", ["commit", "rollback"])
    @pytest.mark.parametrize("and_goes_on", [False, True])
    def test_work_that_ends_its_transaction_is_told_not_to(
        self, lanes, lane, effects, end, and_goes_on
    ):
        def work(connection):
            effects.write(connection, 0)
            getattr(connection, end)()
            if and_goes_on:
                effects.write(connection, 1)

        with pytest.raises(ConfigurationError, match="do not commit or roll back"):
            lanes.run(step_of(lane, 0), work)
        assert lanes.look(lane) == Place(0)
        assert effects.written() == ([0] if end == "commit" else [])

    def test_a_transaction_is_committed_or_undone_and_moves_no_lane(self, lanes, lane, effects):
        with lanes.transaction() as connection:
            effects.write(connection, 0)

        def fail():
            with lanes.transaction() as connection:
                effects.write(connection, 1)
                raise KeyError

        with pytest.raises(KeyError):
            fail()
        assert (effects.written(), lanes.look(lane)) == ([0], Place(0))

    def test_a_reset_and_its_work_are_one_and_a_mistake_of_the_work_is_its_own(
        self, lanes, lane, effects
    ):
        lanes.run(step_of(lane, 0), lambda c: effects.write(c, 0))
        with pytest.raises((ProgrammingError, OperationalError), match="not_there"):
            lanes.reset(lane.handler, lambda c: (effects.empty(c), c.execute(NOT_THERE)))
        assert (lanes.look(lane), effects.written()) == (Place(1), [0])
        assert lanes.reset(lane.handler, effects.empty) == 1
        assert (lanes.look(lane), effects.written()) == (Place(0), [])


class TestSqliteRuns(OnSql):
    @pytest.fixture
    def url(self, tmp_path):
        return f"sqlite:///{tmp_path / 'lanes.db'}"

    def test_a_database_that_another_one_writes_to_is_away(self, lanes, lane, url, effects):
        hasty = build_engine(url, timeout=timedelta(milliseconds=50))
        with build_engine(url).begin(), pytest.raises(StoreUnavailable, match="locked"):
            SqlLanes(hasty).run(step_of(lane, 0), lambda c: effects.write(c, 0))
        assert SqlLanes(hasty).run(step_of(lane, 0), lambda c: effects.write(c, 0)) == Moved(None)
        hasty.dispose()

    def test_a_disk_that_is_full_amid_the_work_is_no_fault_of_the_work(
        self, lanes, lane, nothing_happened
    ):
        def work(connection):
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
            connection.exec_driver_sql(f"PRAGMA max_page_count = {pages + 1}")
            try:
                connection.exec_driver_sql("CREATE TABLE big AS SELECT zeroblob(1000000) AS it")
            finally:
                connection.exec_driver_sql("PRAGMA max_page_count = 1000000")

        with pytest.raises(StoreUnavailable, match="full"):
            lanes.run(step_of(lane, 0), work)
        nothing_happened()


class TestPostgresqlRuns(OnSql):
    @pytest.fixture
    def url(self, postgresql_url):
        return postgresql_url

    def test_a_failed_statement_that_the_work_hid_is_its_mistake(
        self, lanes, lane, effects, nothing_happened
    ):
        def work(connection):
            effects.write(connection, 0)
            with pytest.raises(IntegrityError):
                effects.write(connection, 0)

        with pytest.raises(DBAPIError, match="transaction is aborted"):
            lanes.run(step_of(lane, 0), work)
        nothing_happened()

    @pytest.mark.parametrize("state", ["40001", "40P01", "53100"])
    def test_what_is_nobodys_mistake_may_be_tried_again(
        self, lanes, lane, effects, nothing_happened, state
    ):
        def work(connection):
            effects.write(connection, 0)
            raise_state(connection, state)

        with pytest.raises(StoreUnavailable):
            lanes.run(step_of(lane, 0), work)
        nothing_happened()

    def test_what_another_database_says_is_not_this_ones_outage(
        self, lanes, lane, url, nothing_happened
    ):
        other = build_engine(url)

        def work(_):
            with other.begin() as connection:
                raise_state(connection, "40001")

        with pytest.raises(OperationalError):
            lanes.run(step_of(lane, 0), work)
        other.dispose()
        nothing_happened()

    @pytest.mark.parametrize("hidden", [False, True])
    def test_a_connection_that_is_lost_amid_the_work_is_an_outage(
        self, lanes, lane, effects, nothing_happened, hidden
    ):
        def work(connection):
            effects.write(connection, 0)
            try:
                connection.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))
            except OperationalError:
                if not hidden:
                    raise

        with pytest.raises(StoreUnavailable):
            lanes.run(step_of(lane, 0), work)
        nothing_happened()

    def test_a_time_limit_amid_a_statement_goes_through_and_nothing_stays_open(
        self, lanes, lane, effects, engine, nothing_happened
    ):
        class TimeLimit(Exception):
            pass

        def ring(*_):
            raise TimeLimit

        def work(connection):
            effects.write(connection, 0)
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            connection.execute(text("SELECT pg_sleep(20)"))

        before = signal.signal(signal.SIGALRM, ring)
        try:
            with pytest.raises(TimeLimit):
                lanes.run(step_of(lane, 0), work)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        assert engine.pool.checkedout() == 0
        asleep = text("SELECT 1 FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(20)'")
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            wait_until(
                lambda: connection.execute(asleep).first() is None, "the server ends it as well"
            )
        nothing_happened()

    def test_runs_that_wait_for_each_other_end_and_one_may_be_tried_again(self, lanes, effects):
        meet = threading.Barrier(2, timeout=60)
        first, second = new_lane(), new_lane()

        def run(lane, mine, others):
            def work(connection):
                effects.write(connection, mine)
                meet.wait()
                effects.write(connection, others)

            return lanes.run(step_of(lane, 0), work)

        with ThreadPoolExecutor(2) as pool:
            runs = [pool.submit(run, first, 1, 2), pool.submit(run, second, 2, 1)]
            errors = [type(one.exception()) for one in runs]
        assert errors.count(StoreUnavailable) == 1
        assert len(effects.written()) == 2 * errors.count(type(None))
        moved = [lanes.look(lane).next_sequence for lane in (first, second)]
        assert moved == [int(error is type(None)) for error in errors]


def raise_state(connection, state):
    raised = f"RAISE EXCEPTION 'told' USING ERRCODE = '{state}'"
    connection.execute(text(f"DO $$ BEGIN {raised}; END $$"))
