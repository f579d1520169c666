"""The tables of event books, from those of before there were revisions to today's."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from uuid import uuid4

import pytest
from sqlalchemy import inspect, select, text, update
from tests.adapters.revisions import failing_at, indexes, run_ddl
from tests.contracts.books import deciding, event
from tests.contracts.rejections import a_case

from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.event_store.books import SqlEventBooks
from angzarr.adapters.sql.event_store.rejections import SqlRejectionLog
from angzarr.adapters.sql.event_store.tables import BOOKS, HEAD, METADATA, books_version
from angzarr.adapters.sql.ledger.schema import LEDGER
from angzarr.aggregates.book import Address, Write
from angzarr.errors import StoreUnavailable
from angzarr.maintenance.schema_versions import SchemaStanding
from angzarr.sagas.log import CaseFilter

#: A row of each table, as the release before wrote it.
ROWS = """
INSERT INTO event_books VALUES ('player', 'p', '', 1);
INSERT INTO book_events VALUES ('player', 'p', '', 0, 'e-1', 'Counted', NULL, '{"data" : 7}');
INSERT INTO book_decisions VALUES
    ('player', 'p', '', 'c', NULL, 'accepted', '""', 0, 1, NULL, '2026-03-01 12:00:00', '""', NULL);
INSERT INTO book_snapshots VALUES ('player', 'p', '', 1, 1, 'default', '7')
"""
PLACE = Address("player", "p")


def fill(engine):
    with engine.begin() as connection:
        for row in ROWS.split(";"):
            connection.execute(text(row))


class BookUpgradeContract:
    @pytest.fixture
    def url(self):
        raise NotImplementedError

    @pytest.fixture
    def engine(self, url):
        engine = build_engine(url)
        METADATA.drop_all(engine)
        yield engine
        METADATA.drop_all(engine)
        engine.dispose()

    def test_new_tables_are_those_of_this_release(self, engine):
        BOOKS.make_ready(engine)
        assert BOOKS.revision_of(engine).standing is SchemaStanding.CURRENT
        assert BOOKS.differences(engine) == []

    def test_first_tables_are_adopted_and_upgraded_with_their_rows(self, engine):
        run_ddl(engine, "books_of_0001")
        fill(engine)
        assert BOOKS.revision_of(engine).found == "0001"
        reading = SqlEventBooks(engine).read(PLACE, cause="c", whole=True)
        assert [one.data for one in reading.book.events] == [7]
        assert reading.decision.events == reading.book.events
        assert SqlEventBooks(engine).read(PLACE).book.snapshot.state == 7
        assert BOOKS.revision_of(engine).standing is SchemaStanding.CURRENT
        assert BOOKS.differences(engine) == []

    def test_upgraded_tables_have_the_indexes_of_new_ones(self, engine):
        run_ddl(engine, "books_of_0001")
        BOOKS.make_ready(engine)
        upgraded = indexes(engine, METADATA)
        METADATA.drop_all(engine)
        BOOKS.make_ready(engine)
        assert upgraded == indexes(engine, METADATA)

    @pytest.mark.parametrize("part", ["book", "rejected_commands"])
    def test_where_one_part_was_used_alone_the_other_is_made(self, engine, part):
        run_ddl(engine, "books_of_0001", part=part)
        tables = set(inspect(engine).get_table_names())
        assert len({"event_books", "rejected_commands"} & tables) == 1
        SqlRejectionLog(engine).note(case := a_case())
        SqlEventBooks(engine).write(Write(address=PLACE, decision=deciding(event())))
        assert SqlRejectionLog(engine).look(case.id) == [case]
        assert BOOKS.differences(engine) == []

    def test_processes_that_start_together_upgrade_once(self, url, engine):
        run_ddl(engine, "books_of_0001")
        write = Write(address=PLACE, decision=deciding(event(), cause="c"))

        def decide(_number):
            with closing(SqlEventBooks(build_engine(url))) as books:
                return books.write(write).decision

        with ThreadPoolExecutor(4) as pool:
            decisions = list(pool.map(decide, range(4)))
        assert decisions == decisions[:1] * 4
        with engine.connect() as connection:
            assert connection.scalars(select(books_version.c.version_num)).all() == [HEAD]

    @pytest.mark.parametrize(
        "beginning", ["CREATE INDEX", "UPDATE books_version", "INSERT INTO books_version"]
    )
    def test_an_upgrade_that_fails_is_ended_by_the_next_one(self, engine, beginning):
        run_ddl(engine, "books_of_0001")
        with failing_at(beginning), pytest.raises(OSError, match="the power went"):
            BOOKS.make_ready(engine)
        assert BOOKS.revision_of(engine).found == "0001"
        BOOKS.make_ready(engine)
        assert BOOKS.differences(engine) == []

    def test_tables_behind_are_refused_where_they_may_not_be_changed(self, engine):
        run_ddl(engine, "books_of_0001")
        told = r"event books at .* has revision 0001.*books_migrate is off.*upgrade books`"
        for act in (
            lambda: SqlEventBooks(engine, migrate=False).read(PLACE),
            lambda: SqlRejectionLog(engine, migrate=False).cases(CaseFilter(), limit=1),
        ):
            with pytest.raises(StoreUnavailable, match=told):
                act()
        assert BOOKS.revision_of(engine).found == "0001"
        assert BOOKS.upgrade(engine).found == "0001"
        assert SqlEventBooks(engine, migrate=False).read(PLACE).book.next_sequence == 0

    def test_missing_tables_are_refused_where_none_may_be_made(self, engine):
        with pytest.raises(StoreUnavailable, match=r"no tables.*`angzarr database upgrade books`"):
            SqlEventBooks(engine, migrate=False).read(PLACE)
        assert not inspect(engine).has_table("event_books")

    def test_tables_of_a_newer_release_are_refused_and_left_alone(self, engine):
        BOOKS.make_ready(engine)
        with engine.begin() as connection:
            connection.execute(update(books_version).values(version_num="9999"))
        told = r"9999.*newer release here too, messages wait"
        for act in (lambda: SqlEventBooks(engine).read(PLACE), lambda: BOOKS.upgrade(engine)):
            with pytest.raises(StoreUnavailable, match=told):
                act()

    def test_its_revision_is_none_of_the_ledgers(self, engine):
        run_ddl(engine, "books_of_0001")
        LEDGER.make_ready(engine)
        assert BOOKS.revision_of(engine).found == "0001"
        BOOKS.make_ready(engine)
        assert [one.revision_of(engine).standing for one in (LEDGER, BOOKS)] == ["current"] * 2
        assert [one.differences(engine) for one in (LEDGER, BOOKS)] == [[], []]

    def test_a_book_is_written_to_while_the_release_before_goes_on(self, engine):
        """It knows no revision: its statements are those of the tables that it knows."""
        BOOKS.make_ready(engine)
        fill(engine)
        answer = SqlEventBooks(engine).write(
            Write(address=PLACE, decision=deciding(event(), cause=str(uuid4())))
        )
        assert answer.decision.events[0].sequence == 1


class TestSqliteBookUpgrade(BookUpgradeContract):
    @pytest.fixture
    def url(self, tmp_path):
        return f"sqlite:///{tmp_path / 'books.db'}"


class TestPostgresqlBookUpgrade(BookUpgradeContract):
    @pytest.fixture
    def url(self, postgresql_url):
        return postgresql_url
