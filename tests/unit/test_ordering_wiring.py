"""Where the order of events is kept, and what is refused because not all would share it."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from types import ModuleType, SimpleNamespace

import pytest

from angzarr import Angzarr, ordering_wiring
from angzarr.errors import ConfigurationError
from angzarr.settings import load

POSTGRES = "postgresql+psycopg://us:s3cret@127.0.0.1:1/angzarr"
OTHER = "postgresql+psycopg://us:s3cret@127.0.0.1:2/angzarr"
BROKERS = ["redis://127.0.0.1:1", "amqp://127.0.0.1:1", "sqs://", "rediss://x", "sentinel://x"]
PART = "ordering"


def check(broker, url=None, **given):
    return ordering_wiring.check_ordering(load({PART: {"url": url}, **given}), broker)


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch):
    for name in [name for name in os.environ if name.startswith("ANGZARR_")]:
        monkeypatch.delenv(name)


@pytest.mark.parametrize("broker", [*BROKERS, "filesystem://"])
@pytest.mark.parametrize("store", [None, "redis://127.0.0.1:1", "sqlite:///claims.db"])
def test_without_a_database_it_is_said_what_to_set(broker, store):
    with pytest.raises(ConfigurationError, match=r"set ordering\.url, e\.g\.") as caught:
        check(broker, store=store)
    assert "ANGZARR_ORDERING__URL" in str(caught.value)


def test_its_own_database_comes_before_the_books_and_these_before_the_claims():
    given = {"books": "sqlite:///books.db", "store": POSTGRES}
    assert check("memory://", "sqlite:///order.db", **given) == "sqlite:///order.db"
    assert check("memory://", **given) == "sqlite:///books.db"
    assert check("redis://x", store=POSTGRES) == POSTGRES
    assert check("redis://x", books=OTHER, store=POSTGRES) == OTHER


def test_an_embedded_app_has_an_embedded_database():
    assert check("memory://") == "sqlite:///angzarr.db"
    assert check("memory://", store=POSTGRES) == "sqlite:///angzarr.db"


@pytest.mark.parametrize("broker", BROKERS)
@pytest.mark.parametrize("key", ["url", "books"])
@pytest.mark.parametrize("url", ["sqlite:///order.db", "memory://"])
def test_what_is_of_one_host_does_not_serve_a_broker_of_many(broker, key, url):
    with pytest.raises(ConfigurationError, match=r"keeps the order of events for one host or"):
        check(broker, **{key: url})


@pytest.mark.parametrize("broker", [*BROKERS, "memory://", "filesystem://"])
def test_a_server_serves_all(broker):
    assert check(broker, POSTGRES) == POSTGRES


def test_a_file_serves_one_host_and_memory_one_process():
    assert check("filesystem://", "sqlite:///order.db") == "sqlite:///order.db"
    assert check("memory://", "memory://") == "memory://"
    with pytest.raises(ConfigurationError, match=r"set ordering\.url to postgresql"):
        check("filesystem://", "memory://")


def test_no_sentence_shows_a_password():
    with pytest.raises(ConfigurationError) as caught:
        ordering_wiring.open_ordering(load({PART: {"url": "mysql://us:s3cret@h/d"}}), "redis://")
    assert "s3cret" not in str(caught.value)
    assert "s3cret" not in repr(load({PART: {"url": POSTGRES}}))


def test_the_environment_wins(monkeypatch):
    monkeypatch.setenv("ANGZARR_ORDERING__URL", "sqlite:///env.db")
    monkeypatch.setenv("ANGZARR_ORDERING__GAP_AFTER", "90")
    assert check("memory://", "sqlite:///code.db") == "sqlite:///env.db"
    assert load({PART: {"gap_after": 5}}).ordering.gap_after == timedelta(seconds=90)


@pytest.mark.parametrize("wrong", [{"most_parked": 0}, {"gap_after": 0}, {"uri": "x"}])
def test_what_cannot_be_meant_is_refused_with_its_name(wrong):
    with pytest.raises(ConfigurationError, match=rf"ordering\.{next(iter(wrong))}"):
        load({PART: wrong})


def test_code_may_say_it():
    app = Angzarr("o", broker="memory://", store="memory://", ordering={"most_parked": 7})
    try:
        assert app.settings.ordering.most_parked == 7
    finally:
        app.close()


def test_no_module_of_a_database_is_imported_for_memory(monkeypatch):
    closed = []
    lanes = SimpleNamespace(checkpoints="theirs", close=lambda: closed.append("lanes"))
    module = ModuleType("angzarr.adapters.memory.lanes")
    module.MemoryLanes = lambda: lanes
    monkeypatch.setitem(sys.modules, "angzarr.adapters.memory.lanes", module)
    monkeypatch.setitem(sys.modules, "angzarr.adapters.sql.shared_engine", None)
    stores = ordering_wiring.open_ordering(load({PART: {"url": "memory://"}}), "memory://")
    assert stores == (lanes, "theirs")
    stores.close()
    assert closed == ["lanes"]
