from __future__ import annotations

import re
from datetime import timedelta
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from sqlalchemy import inspect, select, text
from tests.contracts.books import EventBooksContract, deciding, event
from tools.tcp_proxy import LossyProxy, unused_port

from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.event_store.books import SqlEventBooks
from angzarr.adapters.sql.event_store.tables import book_snapshots
from angzarr.aggregates.book import Address, Kept, Retention, Snapshot, Write
from angzarr.errors import StoreUnavailable

PATIENT = timedelta(seconds=30)


class OnSql(EventBooksContract):
    """Subclasses give the `url`."""

    @pytest.fixture
    def engine(self, url):
        engine = build_engine(url, timeout=PATIENT)
        yield engine
        engine.dispose()

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


class TestSqliteEventBooks(OnSql):
    @pytest.fixture
    def url(self, tmp_path):
        return f"sqlite:///{tmp_path / 'books.db'}"


class TestPostgresqlEventBooks(OnSql):
    @pytest.fixture
    def url(self, postgresql_url):
        return postgresql_url

    def test_a_reader_waits_for_no_writer(self, books, engine, address, append):
        append(event("a"))
        held = text("SELECT * FROM event_books WHERE root = :root FOR UPDATE")
        with engine.begin() as connection:
            connection.execute(held, {"root": address.root})
            assert books.read(address).book.next_sequence == 1


@pytest.fixture
def proxy(postgresql_url):
    place = urlsplit(postgresql_url)
    with LossyProxy(place.hostname, place.port) as proxy:
        yield proxy


@pytest.fixture
def through_proxy(proxy, postgresql_url):
    url = re.sub(r"@[^/]+/", f"@127.0.0.1:{proxy.port}/", postgresql_url)
    engine = build_engine(url, timeout=timedelta(seconds=2))
    yield SqlEventBooks(engine)
    engine.dispose()


def test_a_commit_whose_answer_is_lost_appends_once(through_proxy, proxy):
    address = Address("player", str(uuid4()))
    through_proxy.read(address)
    write = Write(address=address, decision=deciding(event("a")), expected=0)
    proxy.lose_replies(b"COMMIT")
    answer = through_proxy.write(write)
    assert isinstance(answer, Kept)
    assert answer.decision.events == through_proxy.read(address).book.events
    assert through_proxy.read(address).book.next_sequence == 1


def test_a_database_that_is_away_is_told_and_the_write_may_be_repeated(through_proxy, proxy):
    address = Address("player", str(uuid4()))
    through_proxy.read(address)
    write = Write(address=address, decision=deciding(event("a")), expected=0)
    proxy.lose_replies(b"COMMIT", times=100)
    with pytest.raises(StoreUnavailable):
        through_proxy.write(write)
    proxy.lose_replies(b"", times=0)
    assert isinstance(through_proxy.write(write), Kept)
    assert through_proxy.read(address).book.next_sequence == 1


def test_a_server_that_is_down_is_unavailable_and_the_password_stays_secret():
    books = SqlEventBooks(build_engine(f"postgresql://u:s3cret@127.0.0.1:{unused_port()}/x"))
    with pytest.raises(StoreUnavailable) as caught:
        books.read(Address("player", "p"))
    assert "s3cret" not in f"{caught.value} {caught.value.__cause__!r}"


def test_tables_come_with_the_first_step(tmp_path):
    engine = build_engine(f"sqlite:///{tmp_path / 'books.db'}")
    SqlEventBooks(engine).read(Address("player", "p"))
    assert {"event_books", "book_events"} <= set(inspect(engine).get_table_names())
    engine.dispose()
