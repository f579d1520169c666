"""Looking for what is old enough reads that and no more, however much lies beside it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import event as hook
from sqlalchemy import insert, text
from tests.contracts.rejections import a_case

from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.event_store.books import SqlEventBooks
from angzarr.adapters.sql.event_store.rejections import SqlRejectionLog, row_of
from angzarr.adapters.sql.event_store.tables import (
    BOOKS,
    METADATA,
    book_decisions,
    decision_row,
    rejected_commands,
)
from angzarr.aggregates.book import Address, Decision
from angzarr.sagas.log import RejectionStatus

MANY = 2_000
NOW = datetime(2026, 3, 1, tzinfo=UTC)
OLD = NOW - timedelta(days=1)
PLACE = Address("player", "p")


def decisions():
    """Return young ones, and old ones of which events are unsent."""
    for number in range(MANY):
        young, old = (Decision(cause=f"{age}{number}") for age in ("young", "old"))
        yield decision_row(young, PLACE, 0, NOW) | {"unsent_since": None}
        yield decision_row(old, PLACE, 0, OLD - timedelta(days=1)) | {"unsent_since": OLD}


def cases():
    """Return young ones that are closed, and old ones that are not."""
    for _ in range(MANY):
        yield row_of(a_case(status=RejectionStatus.COMPENSATED, changed_at=NOW))
        yield row_of(a_case(status=RejectionStatus.FAILED, changed_at=OLD - timedelta(days=1)))


class BookPlansContract:
    @pytest.fixture
    def engine(self, url):
        engine = build_engine(url)
        METADATA.drop_all(engine)
        BOOKS.make_ready(engine)
        with engine.begin() as connection:
            connection.execute(insert(book_decisions), list(decisions()))
            connection.execute(insert(rejected_commands), list(cases()))
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("ANALYZE"))
        yield engine
        METADATA.drop_all(engine)
        engine.dispose()

    @pytest.mark.parametrize(
        ("store", "index"),
        [
            (SqlEventBooks, "ix_book_decisions_sent"),
            (SqlRejectionLog, "ix_rejected_commands_changed"),
        ],
    )
    def test_what_is_old_enough_comes_from_its_index(self, engine, store, index):
        said = []

        def hear(_connection, _cursor, statement, parameters, *_rest):
            if "LIMIT" in statement:
                said.append((statement, parameters))

        hook.listen(engine, "before_cursor_execute", hear)
        assert store(engine).prune(OLD, limit=500) == 0
        hook.remove(engine, "before_cursor_execute", hear)
        assert said
        with engine.connect() as connection:
            for question in said:
                self.assert_reads_few(connection, index, *question)


class TestSqliteBookPlans(BookPlansContract):
    @pytest.fixture
    def url(self, tmp_path):
        return f"sqlite:///{tmp_path / 'books.db'}"

    def assert_reads_few(self, connection, index, statement, parameters):
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
        (step,) = [one.detail for one in plan]
        assert step.startswith("SEARCH")
        assert f"INDEX {index} (" in step


class TestPostgresqlBookPlans(BookPlansContract):
    @pytest.fixture
    def url(self, postgresql_url):
        return postgresql_url

    def assert_reads_few(self, connection, index, statement, parameters):
        explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}"
        found = connection.exec_driver_sql(explain, parameters).scalar()
        plan = (json.loads(found) if isinstance(found, str) else found)[0]["Plan"]
        assert index in json.dumps(plan)
        assert "Seq Scan" not in json.dumps(plan)
        assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] <= 20
