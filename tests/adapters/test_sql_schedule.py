from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import pytest
from sqlalchemy import delete, inspect, select, text, update
from tests.contracts.schedule import LONG, ScheduleContract, message
from tools.polling import wait_until
from tools.tcp_proxy import LossyProxy, unused_port

from angzarr.adapters.sql.delivery.idempotency import create_tables, waiting_messages
from angzarr.adapters.sql.delivery.schedule import SqlSchedule
from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.errors import StoreUnavailable

PATIENT = timedelta(seconds=30)


class OnSql(ScheduleContract):
    """Subclasses give the `url`."""

    @pytest.fixture
    def let_pass(self):
        return lambda span: time.sleep(span.total_seconds() + 0.005)

    @pytest.fixture
    def pretend(self, engine):
        def pretend(span):
            with engine.begin() as connection:
                for row in connection.execute(select(waiting_messages)).all():
                    earlier = update(waiting_messages).where(waiting_messages.c.id == row.id)
                    connection.execute(earlier.values(due_at=row.due_at - span))

        return pretend

    @pytest.fixture
    def engine(self, url):
        engine = build_engine(url, timeout=PATIENT)
        create_tables(engine)
        with engine.begin() as connection:
            connection.execute(delete(waiting_messages))
        yield engine
        engine.dispose()

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


class TestSqliteSchedule(OnSql):
    @pytest.fixture
    def url(self, tmp_path):
        return f"sqlite:///{tmp_path / 'angzarr.db'}"

    def test_looking_in_vain_waits_for_no_writer(self, schedule, engine):
        schedule.put(message(), datetime.now(UTC) + LONG)
        with engine.begin():  # BEGIN IMMEDIATE
            assert schedule.take("a", 10, LONG).rows == []


class TestPostgresqlSchedule(OnSql):
    @pytest.fixture
    def url(self, postgresql_url):
        return postgresql_url

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
        address = urlsplit(url)
        with LossyProxy(address.hostname, address.port) as proxy:
            through = build_engine(re.sub(r"@[^/]+/", f"@127.0.0.1:{proxy.port}/", url))
            schedule = SqlSchedule(through)
            schedule.take("warm", 1, LONG)
            proxy.lose_replies(b"COMMIT")
            schedule.put(message(), datetime.now(UTC))
            schedule.take("none", 0, LONG)
            proxy.lose_replies(b"UPDATE")
            # The session that was cut may hold its lock for a moment still.
            (row,) = wait_until(lambda: schedule.take("a", 10, LONG).rows)
            assert schedule.take("a", 10, LONG).rows == [row]
            through.dispose()


def test_a_database_that_is_down_is_unavailable():
    schedule = SqlSchedule(build_engine(f"postgresql://u:s3cret@127.0.0.1:{unused_port()}/x"))
    with pytest.raises(StoreUnavailable) as caught:
        schedule.put(message(), datetime.now(UTC))
    assert "s3cret" not in str(caught.value)
    with pytest.raises(StoreUnavailable):
        schedule.take("a", 1, LONG)
