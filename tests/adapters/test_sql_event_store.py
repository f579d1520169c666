"""The event store over SQLite and PostgreSQL, and that its pages come from the primary key."""

from __future__ import annotations

import json
from uuid import uuid4

import pytest
from sqlalchemy import event as hook
from sqlalchemy import insert, text
from tests.adapters.sql_sides import OnPostgresql, OnSqlite
from tests.contracts.books import event
from tests.contracts.event_store import EventStoreContract, fill

from angzarr.adapters.sql.event_store.books import SqlEventBooks, SqlEventStore
from angzarr.adapters.sql.event_store.tables import BOOKS, book_events, event_books
from angzarr.aggregates.book import Address, Head

MANY = 3_000
PAGE = 10


class SqlEventStoreContract(EventStoreContract):
    """Subclasses give `assert_reads_few`."""

    @pytest.fixture
    def books(self, engine):
        return SqlEventBooks(engine)

    @pytest.fixture
    def store(self, engine):
        return SqlEventStore(engine)

    @pytest.fixture
    def event_stores(self, engine):
        """Two domains of *MANY* books each, with an event in each."""
        BOOKS.make_ready(engine)
        domains = [f"a{uuid4()}", f"b{uuid4()}"]
        places = [
            {"domain": domain, "root": f"r{number:06}", "edition": ""}
            for domain in domains
            for number in range(MANY)
        ]
        said = {"sequence": 0, "type": "Counted", "event": '{"data":null}'}
        with engine.begin() as connection:
            connection.execute(insert(event_books), [{**one, "next_sequence": 1} for one in places])
            events = [{**one, **said, "id": str(uuid4())} for one in places]
            connection.execute(insert(book_events), events)
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("ANALYZE"))
        return domains

    @pytest.fixture
    def asked(self, engine):
        """Return what a verb of the store asks, with parameters."""

        def ask(verb):
            said = []

            def hear(_connection, _cursor, statement, parameters, *_rest):
                if statement.startswith("SELECT") and "FROM" in statement:
                    said.append((statement, parameters))

            hook.listen(engine, "before_cursor_execute", hear)
            try:
                verb()
            finally:
                hook.remove(engine, "before_cursor_execute", hear)
            return said

        return ask

    def test_a_page_from_the_middle_is_read_from_there(self, store, event_stores, asked, engine):
        store.heads(event_stores, None, 1)  # the tables are looked for once
        for domain in event_stores:
            middle = Address(domain, f"r{MANY // 2:06}")
            (heads,) = asked(lambda at=middle: store.heads(event_stores, at, PAGE))
            (events,) = asked(lambda at=middle: store.scan(event_stores, Head(at, 0), PAGE))
            with engine.connect() as connection:
                self.assert_reads_few(connection, PAGE, *heads)
                self.assert_reads_few(connection, PAGE, *events)

    def test_what_is_pending_is_found_by_its_places(self, store, event_stores, asked, engine):
        store.heads(event_stores, None, 1)
        places = [Head(Address(event_stores[0], f"r{number:06}"), 0) for number in range(PAGE)]
        (counts,) = asked(lambda: store.pending(places))
        with engine.connect() as connection:
            self.assert_reads_few(connection, PAGE, *counts, sorts=True)

    def test_a_page_that_two_domains_share_asks_for_both(self, store, event_stores, asked):
        store.heads(event_stores, None, 1)
        nearly_done = Address(event_stores[0], f"r{MANY - PAGE // 2:06}")
        assert len(asked(lambda: store.heads(event_stores, nearly_done, PAGE))) == 2
        assert len(store.heads(event_stores, nearly_done, PAGE)) == PAGE


class TestSqliteEventStore(OnSqlite, SqlEventStoreContract):
    def assert_reads_few(self, connection, _most, statement, parameters, *, sorts=False):
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
        steps = [one.detail for one in plan]
        seeks = [step for step in steps if step.startswith("SEARCH")]
        assert len(seeks) == 1
        assert "USING INDEX sqlite_autoindex_" in seeks[0]
        assert "domain=? AND" in seeks[0]
        assert sorts or steps == seeks, "nothing is sorted"
        assert not [step for step in steps if step.startswith("SCAN book_events")]


class TestPostgresqlEventStore(OnPostgresql, SqlEventStoreContract):
    def assert_reads_few(self, connection, most, statement, parameters, *, sorts=False):
        explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}"
        found = connection.exec_driver_sql(explain, parameters).scalar()
        plan = (json.loads(found) if isinstance(found, str) else found)[0]["Plan"]
        steps = list(_steps(plan))
        assert {one.get("Index Name") for one in steps} & {"event_books_pkey", "book_events_pkey"}
        assert not {"Seq Scan", *([] if sorts else ["Sort"])} & {one["Node Type"] for one in steps}
        assert all(one["Actual Rows"] <= most for one in steps)
        assert not any(one.get("Rows Removed by Filter") for one in steps)
        # What an index scan skips on its way is in no row count: it shows in the pages it touches.
        assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] <= 6 * most

    def test_a_reader_waits_for_no_writer(self, books, engine, store, domain):
        place = Address(domain, "r")
        fill(books, place, event("a"))
        held = text("SELECT * FROM event_books WHERE domain = :domain FOR UPDATE")
        with engine.begin() as connection:
            connection.execute(held, {"domain": domain})
            assert store.heads([domain], None, 1) == [Head(place, 1)]
            assert len(store.scan([domain], None, 1)) == 1


def _steps(plan):
    yield plan
    for one in plan.get("Plans", ()):
        yield from _steps(one)
