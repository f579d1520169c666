"""Where the order of events is kept, and what is refused because not all would share it."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime, timedelta

import pytest

from angzarr import Angzarr
from angzarr.aggregates.book import Address
from angzarr.errors import ConfigurationError
from angzarr.ordering.lane import Lane, Place, Step
from angzarr.settings.settings import load
from angzarr.wiring import event_store as ordering_wiring

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


def open_at(url):
    return ordering_wiring.open_ordering(load({PART: {"url": url}}), "memory://")


LANE = Lane("reports", Address("order", "o-1"))
STEP = Step(LANE, 0, "e-0", "Placed", None, datetime(2026, 1, 1, tzinfo=UTC))


def test_memory_asks_for_no_database(monkeypatch):
    monkeypatch.setitem(sys.modules, "angzarr.adapters.sql.engine.engine", None)
    stores = open_at("memory://")
    stores.lanes.move(STEP)
    assert stores.checkpoints.get("reports").last_event_id == "e-0", "who moves a lane counts"
    stores.close()
    stores.close()


def test_a_database_is_opened_when_first_used_and_closed_twice(tmp_path):
    stores = open_at(f"sqlite:///{tmp_path / 'order.db'}")
    assert list(tmp_path.iterdir()) == [], "nothing was connected to yet"
    stores.lanes.move(STEP)
    assert stores.lanes.look(LANE) == Place(1)
    assert stores.checkpoints.get("reports").last_event_id == "e-0", "who moves a lane counts"
    stores.close()
    stores.close()


def test_one_who_closes_leaves_the_database_to_others(tmp_path):
    one, two = (open_at(f"sqlite:///{tmp_path / 'order.db'}") for _ in range(2))
    one.lanes.move(STEP)
    one.close()
    one.close()
    assert two.lanes.look(LANE) == Place(1)
    two.close()


def test_a_server_that_is_away_is_no_reason_to_refuse():
    ordering_wiring.open_ordering(load({PART: {"url": POSTGRES}}), "redis://").close()
