from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import delete, inspect, select, text, update
from tests.adapters.sql_sides import OnPostgresql, OnSqlite, bad_line
from tests.contracts.schedule import LONG, ScheduleContract, message
from tools.polling import wait_until

from angzarr.adapters.sql.delivery.claim_tables import create_tables, waiting_messages
from angzarr.adapters.sql.delivery.schedule import SqlSchedule
from angzarr.adapters.sql.engine.engine import build_engine


class SqlScheduleContract(ScheduleContract):
    @pytest.fixture
    def pretend(self, engine):
        def pretend(span):
            with engine.begin() as connection:
                for row in connection.execute(select(waiting_messages)).all():
                    earlier = update(waiting_messages).where(waiting_messages.c.id == row.id)
                    connection.execute(earlier.values(due_at=row.due_at - span))

        return pretend

    @pytest.fixture(autouse=True)
    def empty(self, engine):
        create_tables(engine)
        with engine.begin() as connection:
            connection.execute(delete(waiting_messages))

    @pytest.fixture
    def schedule(self, engine):
        return SqlSchedule(engine)

    def test_the_table_comes_with_the_first_put(self, engine, url):
        with engine.begin() as connection:
            connection.execute(text("DROP TABLE waiting_messages"))
        another = build_engine(url)
        SqlSchedule(another).put(message(), datetime.now(UTC))
        indexes = inspect(another).get_indexes("waiting_messages")
        assert {"due_at", "token"} == {index["column_names"][0] for index in indexes}
        another.dispose()

    def test_waits_are_measured_by_the_database(self, engine):
        class SkewedClock:
            def now(self):
                return datetime.now(UTC) + timedelta(hours=1)

        skewed = SqlSchedule(engine, clock=SkewedClock())
        skewed.put(message(), SkewedClock().now() + timedelta(minutes=1))
        next_in = skewed.take("a", 10, LONG).next_in
        assert timedelta(seconds=40) < next_in <= timedelta(minutes=1)


class TestSqliteSchedule(OnSqlite, SqlScheduleContract):
    def test_looking_in_vain_waits_for_no_writer(self, schedule, engine):
        schedule.put(message(), datetime.now(UTC) + LONG)
        with engine.begin():  # BEGIN IMMEDIATE
            assert schedule.take("a", 10, LONG).rows == []


class TestPostgresqlSchedule(OnPostgresql, SqlScheduleContract):
    def test_rows_that_another_is_just_taking_are_skipped(self, schedule, engine):
        for name in ("m1", "m2"):
            schedule.put(message(name), datetime.now(UTC))
        with engine.begin() as connection:
            locked = connection.execute(
                text("SELECT id FROM waiting_messages ORDER BY due_at LIMIT 1 FOR UPDATE")
            ).scalar_one()
            (other,) = schedule.take("a", 10, LONG).rows
        assert other.id != locked

    def test_a_lost_commit_is_repeated_and_lends_the_same_rows(self, engine, url):
        with bad_line(url) as (through, proxy):
            schedule = SqlSchedule(through)
            schedule.take("warm", 1, LONG)
            proxy.lose_replies(b"COMMIT")
            schedule.put(message(), datetime.now(UTC))
            schedule.take("none", 0, LONG)
            proxy.lose_replies(b"UPDATE")
            # The session that was cut may hold its lock for a moment still.
            (row,) = wait_until(lambda: schedule.take("a", 10, LONG).rows)
            assert schedule.take("a", 10, LONG).rows == [row]
