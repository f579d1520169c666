from __future__ import annotations

from uuid import uuid4

import pytest
from sqlalchemy import select, text
from tests.adapters.sql_sides import OnPostgresql, OnSqlite, bad_line
from tests.contracts.books import EventBooksContract, deciding, event

from angzarr.adapters.sql.event_store.books import SqlEventBooks
from angzarr.adapters.sql.event_store.tables import book_snapshots
from angzarr.aggregates.book import Address, Kept, Retention, Snapshot, Write
from angzarr.errors import StoreUnavailable


class SqlBooksContract(EventBooksContract):
    @pytest.fixture
    def books(self, engine):
        return SqlEventBooks(engine)

    def test_older_snapshots_are_deleted_but_those_that_are_to_stay(self, books, engine, address):
        for place in range(1, 6):
            retention = Retention.PERSIST if place == 2 else Retention.DEFAULT
            snapshot = Snapshot(sequence=place, state=place, retention=retention)
            books.write(Write(address=address, decision=deciding(event()), snapshot=snapshot))
        places = select(book_snapshots.c.sequence).where(book_snapshots.c.root == address.root)
        with engine.connect() as connection:
            assert sorted(connection.execute(places).scalars()) == [2, 5]

    def test_a_decision_is_read_with_its_events_only(self, books, address, append):
        append(event("a"), event("b"))
        append(event("c"), cause="c")
        append(event("d"))
        assert [one.sequence for one in books.read(address, cause="c").decision.events] == [2]


class TestSqliteEventBooks(OnSqlite, SqlBooksContract):
    pass


class TestPostgresqlEventBooks(OnPostgresql, SqlBooksContract):
    def test_a_reader_waits_for_no_writer(self, books, engine, address, append):
        append(event("a"))
        held = text("SELECT * FROM event_books WHERE root = :root FOR UPDATE")
        with engine.begin() as connection:
            connection.execute(held, {"root": address.root})
            assert books.read(address).book.next_sequence == 1


@pytest.fixture
def line(postgresql_url):
    with bad_line(postgresql_url) as (engine, proxy):
        yield SqlEventBooks(engine), proxy


def test_a_commit_whose_answer_is_lost_appends_once(line):
    books, proxy = line
    address = Address("player", str(uuid4()))
    books.read(address)
    write = Write(address=address, decision=deciding(event("a")), expected=0)
    proxy.lose_replies(b"COMMIT")
    answer = books.write(write)
    assert isinstance(answer, Kept)
    assert answer.decision.events == books.read(address).book.events
    assert books.read(address).book.next_sequence == 1


def test_a_database_that_is_away_is_told_and_the_write_may_be_repeated(line):
    books, proxy = line
    address = Address("player", str(uuid4()))
    books.read(address)
    write = Write(address=address, decision=deciding(event("a")), expected=0)
    proxy.lose_replies(b"COMMIT", times=100)
    with pytest.raises(StoreUnavailable):
        books.write(write)
    proxy.lose_replies(b"", times=0)
    assert isinstance(books.write(write), Kept)
    assert books.read(address).book.next_sequence == 1
