from __future__ import annotations

import logging
import os
import threading
import time
from datetime import timedelta
from urllib.parse import urlsplit

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from tests.contracts.facts import AT, FactLogContract, a_fact, facts_of
from tools.tcp_proxy import unused_port

from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.facts.log import SqlFactLog
from angzarr.adapters.sql.facts.tables import FACTS
from angzarr.errors import Unavailable
from polling import wait_until


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/facts.db"
        return
    url = request.getfixturevalue("postgresql_url")
    engine = build_engine(url)
    FACTS.metadata.drop_all(engine)  # others may have left facts
    yield url
    FACTS.metadata.drop_all(engine)
    engine.dispose()


@pytest.fixture
def engine(url):
    engine = build_engine(url)
    yield engine
    engine.dispose()


@pytest.fixture
def log(engine):
    log = SqlFactLog(engine)
    yield log
    log.close()


class TestSqlFactLog(FactLogContract):
    def kept(self, log):
        return log.read(limit=10_000)


def ids(facts):
    return [fact.id for fact in facts]


def test_facts_are_written_soon_without_closing(log):
    log.append([a_fact()])
    wait_until(lambda: log.read() == [a_fact()])


def test_facts_are_found_by_kind_tool_and_time(log):
    log.append(
        [
            a_fact("a", type="error", subtype="external", tool_id="x"),
            a_fact("b", type="error", subtype="transient", tool_id="x"),
            a_fact("c", tool_id="y", at=AT + timedelta(hours=1)),
        ]
    )
    log.close()
    assert ids(log.read(type="error")) == ["a", "b"]
    assert ids(log.read(type="error", subtype="external")) == ["a"]
    assert ids(log.read(tool_id="y")) == ["c"]
    assert ids(log.read(since=AT + timedelta(minutes=1))) == ["c"]
    assert ids(log.read(since=AT)) == ["a", "b", "c"]


def test_pages_follow_each_other_in_the_order_of_writing(log):
    facts = facts_of("page", 25)
    log.append(list(reversed(facts)))
    log.close()
    seen, after = [], None
    while page := log.read(limit=10, after=after):
        seen += ids(page)
        after = page[-1].id
    assert seen == ids(reversed(facts))


def test_a_page_after_an_unknown_fact_is_an_error(log):
    with pytest.raises(LookupError, match="no fact has the id 'nobody'"):
        log.read(after="nobody")


def test_many_processes_may_write_the_first_facts_at_once(url, engine):
    logs = [SqlFactLog(url) for _ in range(4)]
    threads = [
        threading.Thread(target=log.append, args=(facts_of(f"p{number}", 100),))
        for number, log in enumerate(logs)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for log in logs:
        log.close()
        log._engine.dispose()
    assert len(SqlFactLog(engine).read(limit=1000)) == 400


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # Python 3.12
def test_a_forked_child_writes_its_facts_and_not_its_parents(log):
    log.append([a_fact("before")])
    wait_until(lambda: ids(log.read()) == ["before"])
    with log._spool._lock:  # what another thread may hold at the fork
        log._spool._waiting.append(a_fact("parents"))
        child = os.fork()
        if child == 0:
            log.append([a_fact("childs")])
            log.close()
            os._exit(log.dropped)
    assert os.waitpid(child, 0)[1] == 0
    log.append([a_fact("after")])
    log.close()
    assert ids(log.read()) == ["before", "childs", "parents", "after"]


def test_a_table_that_disappears_is_made_again(log, engine):
    log.append([a_fact("a")])
    wait_until(lambda: ids(log.read()) == ["a"])
    with engine.begin() as connection:
        FACTS.metadata.drop_all(connection)
    log.append([a_fact("b")])
    log.close()
    assert ids(log.read()) == ["b"]


def test_facts_wait_for_a_database_that_comes_back(tmp_path):
    log = SqlFactLog(f"sqlite:///{tmp_path}/not-yet/facts.db")
    log.append([a_fact("early")])
    time.sleep(0.3)  # at least one try fails
    (tmp_path / "not-yet").mkdir()
    log.append([a_fact("late")])
    wait_until(lambda: ids(log.read()) == ["early", "late"])
    log.close()
    log._engine.dispose()


def test_facts_wait_for_a_postgresql_database_that_comes_back(postgresql_url, unique_name):
    import psycopg

    base = urlsplit(postgresql_url)
    server = base._replace(scheme="postgresql").geturl()
    log = SqlFactLog(base._replace(path=f"/{unique_name}").geturl())
    log.append([a_fact("early")])
    time.sleep(0.3)  # at least one try fails
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {unique_name}")
        log.append([a_fact("late")])
        log.close()
        assert ids(log.read()) == ["early", "late"]
        log._engine.dispose()
        connection.execute(f"DROP DATABASE {unique_name} WITH (FORCE)")


def test_a_database_that_is_away_blocks_no_delivery_and_is_reported(caplog):
    log = SqlFactLog(f"postgresql+psycopg://nobody@127.0.0.1:{unused_port()}/none", most=10)
    with caplog.at_level(logging.WARNING, "angzarr.facts"):
        began = time.monotonic()
        for fact in facts_of("away", 30):
            log.append([fact])
        assert time.monotonic() - began < 10
        with pytest.raises(Unavailable):
            log.read()
        log.close()
        assert time.monotonic() - began < 40
        wait_until(lambda: log.dropped == 30)
    said = " ".join(record.getMessage() for record in caplog.records)
    assert "facts_dropped" in said
    assert "facts_delayed" in said
    assert "facts_lost" in said
    assert sum("facts_delayed" in record.getMessage() for record in caplog.records) == 1


def test_a_refused_fact_holds_up_no_other(url, engine, monkeypatch, caplog):
    log = SqlFactLog(engine)
    import angzarr.adapters.sql.facts.sink as module

    def row_of(fact, real=module.row_of):
        row = real(fact)
        return row | {"type": None} if fact.id == "bad" else row

    monkeypatch.setattr(module, "row_of", row_of)
    with caplog.at_level(logging.ERROR, "angzarr.facts"):
        log.append([a_fact("a"), a_fact("bad"), a_fact("b")])
        log.close()
    assert ids(log.read()) == ["a", "b"]
    assert "fact_refused: bad" in caplog.text


@pytest.mark.parametrize(
    "change",
    ["UPDATE facts SET subtype = 'other'", "DELETE FROM facts", "UPDATE facts SET id = id"],
)
def test_the_database_changes_no_fact_whoever_asks(log, engine, change):
    log.append([a_fact()])
    log.close()
    with (
        pytest.raises(DBAPIError, match="facts is append-only: rows are never changed"),
        engine.begin() as connection,
    ):
        connection.execute(text(change))
    assert log.read() == [a_fact()]


def test_facts_before_a_time_may_be_deleted_in_the_transaction_that_says_so(log, engine):
    log.append([a_fact("old"), a_fact("new", at=AT + timedelta(days=1))])
    log.close()
    until = {"until": (AT + timedelta(hours=1)).replace(tzinfo=None)}
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO fact_pruning VALUES (:until)"), until)
        connection.execute(text("DELETE FROM facts WHERE id = 'old'"))
        with pytest.raises(DBAPIError, match="append-only"), connection.begin_nested():
            connection.execute(text("DELETE FROM facts"))
        connection.execute(text("DELETE FROM fact_pruning"))
    assert ids(log.read()) == ["new"]
