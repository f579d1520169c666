"""Where event books are kept, and what is refused because not all would share them."""

from __future__ import annotations

import gc
import os
from contextlib import closing
from datetime import timedelta

import pytest
from tests.apps import apps
from tools.polling import wait_until

from angzarr import Aggregate
from angzarr.adapters.memory.event_store import MemoryEventBooks
from angzarr.adapters.sql.engine.engine import ENGINES, build_engine
from angzarr.adapters.sql.event_store.books import SqlEventBooks
from angzarr.aggregates.book import Address, Decision, Head, Write
from angzarr.clock import SystemClock
from angzarr.errors import ConfigurationError
from angzarr.settings.settings import load
from angzarr.wiring import event_store as books_wiring
from angzarr.wiring.delivery import open_book_threads

POSTGRES = "postgresql+psycopg://us:s3cret@127.0.0.1:1/angzarr"
BROKERS = ["redis://127.0.0.1:1", "amqp://127.0.0.1:1", "sqs://", "rediss://x", "sentinel://x"]


def check(books, broker):
    return books_wiring.check_books(load({"books": books}, None), broker)


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch):
    for name in [name for name in os.environ if name.startswith("ANGZARR_")]:
        monkeypatch.delenv(name)


@pytest.mark.parametrize("broker", [*BROKERS, "filesystem://"])
def test_without_a_database_it_is_said_what_to_set(broker):
    with pytest.raises(ConfigurationError, match=r"set books, e\.g\. books: postgresql") as caught:
        check(None, broker)
    assert "ANGZARR_BOOKS" in str(caught.value)


def test_an_embedded_app_has_an_embedded_database():
    assert check(None, "memory://") == "sqlite:///angzarr.db"


@pytest.mark.parametrize("broker", BROKERS)
@pytest.mark.parametrize("books", ["sqlite:///books.db", "memory://"])
def test_what_is_of_one_host_does_not_serve_a_broker_of_many(books, broker):
    with pytest.raises(ConfigurationError, match="keeps event books for one host or process only"):
        check(books, broker)


@pytest.mark.parametrize("broker", [*BROKERS, "memory://", "filesystem://"])
def test_a_server_serves_all(broker):
    assert check(POSTGRES, broker) == POSTGRES


@pytest.mark.parametrize("broker", ["memory://", "filesystem://"])
def test_a_file_serves_one_host(broker):
    assert check("sqlite:///books.db", broker) == "sqlite:///books.db"


def test_memory_serves_one_process():
    assert check("memory://", "memory://") == "memory://"
    with pytest.raises(ConfigurationError, match="one host or process only"):
        check("memory://", "filesystem://")


def test_no_sentence_shows_a_password():
    for books in ("mysql://us:s3cret@h/d", "s3cret"):
        with pytest.raises(ConfigurationError) as caught:
            books_wiring.open_event_stores(load({"books": books}, None), "redis://")
        assert "s3cret" not in str(caught.value)
    assert "s3cret" not in repr(load({"books": POSTGRES}, None))


def test_the_environment_wins(monkeypatch):
    monkeypatch.setenv("ANGZARR_BOOKS", "sqlite:///env.db")
    assert check("sqlite:///code.db", "memory://") == "sqlite:///env.db"


def test_memory_is_opened_and_closed_as_often_as_wanted():
    event_stores = books_wiring.open_event_stores(load({"books": "memory://"}, None), "memory://")
    assert isinstance(event_stores.books, MemoryEventBooks)
    event_stores.close()
    event_stores.close()


def test_a_database_is_opened_when_first_used_and_closed_twice(tmp_path):
    url = f"sqlite:///{tmp_path / 'books.db'}"
    event_stores = books_wiring.open_event_stores(load({"books": url}, None), "memory://")
    assert isinstance(event_stores.books, SqlEventBooks)
    assert list(tmp_path.iterdir()) == [], "nothing was connected to yet"
    decision = Decision(cause="c-1")
    event_stores.books.write(Write(address=Address("player", "p-1"), decision=decision))
    assert event_stores.rejections.look("") == []
    event_stores.close()
    event_stores.close()


def test_one_who_closes_leaves_the_database_to_others(tmp_path):
    settings = load({"books": f"sqlite:///{tmp_path / 'books.db'}"}, None)
    one, two = (books_wiring.open_event_stores(settings, "memory://") for _ in range(2))
    place = Address("player", "p-1")
    one.books.write(Write(address=place, decision=Decision(cause="c-1")))
    one.close()
    one.close()
    assert two.books.read(place, cause="c-1").decision == Decision(cause="c-1")
    two.close()


def test_the_event_store_reads_the_books_of_an_app_that_keeps_them_in_memory():
    settings, other = (load({"books": "memory://"}, None) for _ in range(2))
    event_stores = books_wiring.open_event_stores(settings, "memory://")
    place = Address("player", "p-1")
    event_stores.books.write(Write(address=place, decision=Decision(cause="c-1")))
    assert books_wiring.open_event_stores(settings, "memory://").books is event_stores.books
    store = books_wiring.open_event_store(settings, "memory://")
    assert store.heads(["player"], None, 9) == [Head(place, 0)]
    assert books_wiring.open_event_store(other, "memory://").heads(["player"], None, 9) == []


def test_books_in_memory_go_with_their_settings():
    before = len(books_wiring._IN_MEMORY)
    settings = load({"books": "memory://"}, None)
    books_wiring.open_event_stores(settings, "memory://")
    assert len(books_wiring._IN_MEMORY) == before + 1
    del settings
    gc.collect()
    assert len(books_wiring._IN_MEMORY) == before


def test_the_event_store_reads_the_books_in_a_database_and_is_closed_twice(tmp_path):
    settings = load({"books": f"sqlite:///{tmp_path / 'books.db'}"}, None)
    store = books_wiring.open_event_store(settings, "memory://")
    assert list(tmp_path.iterdir()) == [], "nothing was connected to yet"
    event_stores = books_wiring.open_event_stores(settings, "memory://")
    place = Address("player", "p-1")
    event_stores.books.write(Write(address=place, decision=Decision(cause="c-1")))
    event_stores.close()
    assert store.heads(["player"], None, 9) == [Head(place, 0)]
    store.close()
    store.close()


def test_without_books_there_is_no_event_store():
    with pytest.raises(ConfigurationError, match="which projections are rebuilt from"):
        books_wiring.open_event_store(load({}, None), "redis://")


def test_a_server_that_is_away_is_no_reason_to_refuse():
    books_wiring.open_event_stores(load({"books": POSTGRES}, None), "redis://").close()


class AYearAgo(SystemClock):
    def now(self):
        return super().now() - timedelta(days=365)


def test_a_worker_that_runs_aggregates_forgets_what_is_old(tmp_path):
    place, url = Address("player", "p-1"), f"sqlite:///{tmp_path / 'books.db'}"

    def register(app):
        @app.aggregate("player")
        class Player(Aggregate[dict]): ...

    with (
        apps(register, broker="memory://", store="memory://", books=url) as make,
        closing(SqlEventBooks(build_engine(url), clock=AYearAgo())) as books,
    ):
        books.write(Write(address=place, decision=Decision(cause="c-1")))
        app = make()
        app._runtime.begin_work()
        wait_until(lambda: books.read(place, cause="c-1").decision is None, "it was forgotten")
        app._runtime.end_work()


def test_a_worker_that_ends_lets_the_database_of_its_books_go(tmp_path):
    def register(app):
        @app.aggregate("player")
        class Player(Aggregate[dict]): ...

    url = f"sqlite:///{tmp_path / 'books.db'}"
    with apps(register, broker="memory://", store="memory://", books=url) as make:
        app = make()
        app._runtime.begin_work()
        app._runtime.end_work()
    wait_until(
        lambda: all(place.database != str(tmp_path / "books.db") for place in ENGINES._users),
        "nobody uses it any more",
    )


def test_one_without_aggregates_has_none_to_forget():
    with apps(broker="memory://", store="memory://") as make:
        assert open_book_threads(make()._parts) == []
