"""angzarr database, and angzarr books, on SQLite."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner
from sqlalchemy import text, update
from tests.apps import apps
from tests.contracts.books import deciding, event
from tests.contracts.facts import a_fact
from tests.contracts.rejections import a_case

from angzarr.adapters.sql.configuration.tables import HEAD as CONFIG_HEAD
from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.event_store.tables import HEAD, book_decisions, books_version
from angzarr.adapters.sql.facts.tables import FACTS
from angzarr.adapters.sql.facts.tables import HEAD as FACTS_HEAD
from angzarr.adapters.sql.ledger.tables import HEAD as LEDGER_HEAD
from angzarr.adapters.sql.ordering.tables import HEAD as ORDERING_HEAD
from angzarr.aggregates.book import Address, Write
from angzarr.cli.main import main
from angzarr.sagas.log import RejectionStatus
from angzarr.wiring.ledger import NAMES
from apps import module_with

PLACE = Address("player", "p")
LONG_AGO = datetime.now(UTC) - timedelta(days=365)


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Make the app of the commands, with its database."""
    monkeypatch.chdir(tmp_path)
    with apps(broker="memory://", store="memory://") as make:

        def made():
            url = f"sqlite:///{tmp_path / 'all.db'}"
            app = make(ledger=url, books=url, configuration={"url": url})
            monkeypatch.setitem(sys.modules, "shop_for_tables", module_with(app=app))
            return app

        yield made


@pytest.fixture
def app(make):
    return make()


@pytest.fixture
def engine(tmp_path):
    engine = build_engine(f"sqlite:///{tmp_path / 'all.db'}")
    yield engine
    engine.dispose()


@pytest.fixture
def run():
    def run(*arguments, code=0):
        result = CliRunner().invoke(main, ["-A", "shop_for_tables", *arguments])
        assert result.exit_code == code, result.output
        return result.output

    return run


def test_all_tables_are_upgraded_by_one_command(app, run):
    missing = run("database", "version").splitlines()
    assert missing == [
        f"{name} none: no tables yet; they are made when it is first used" for name in NAMES
    ]
    assert run("database", "upgrade").splitlines() == [
        f"facts upgraded from nothing to {FACTS_HEAD}",  # they tell of the others
        f"ledger upgraded from nothing to {LEDGER_HEAD}",
        f"books upgraded from nothing to {HEAD}",
        f"ordering upgraded from nothing to {ORDERING_HEAD}",
        f"config upgraded from nothing to {CONFIG_HEAD}",
    ]
    assert run("database", "upgrade").count("nothing to do") == len(NAMES)
    assert run("database", "version").count("as this release needs it") == len(NAMES)
    assert run("database", "check").count("nothing differs") == len(NAMES)


def test_the_tables_of_one_schema_are_upgraded_alone(app, run):
    assert run("database", "upgrade", "books") == f"books upgraded from nothing to {HEAD}\n"
    shown = json.loads(run("database", "version", "--json"))
    standings = {name: one["standing"] for name, one in shown.items()}
    told = {"facts": "current"}  # that it begins
    assert standings == dict.fromkeys(NAMES, "missing") | {"books": "current"} | told
    assert json.loads(run("database", "upgrade", "books", "--json")) == {
        "books": {"revision": HEAD, "needed": HEAD, "standing": "current", "now": HEAD}
    }


def test_a_schema_that_is_none_is_wrong_usage(app, run):
    assert "'ledger', 'books', 'ordering'" in run("database", "upgrade", "boks", code=2)


def test_what_differs_ends_with_1(app, run, engine):
    run("database", "upgrade")
    with engine.begin() as connection:
        connection.execute(text("DROP INDEX ix_book_decisions_sent"))
    told = run("database", "check", code=1)
    assert "books ('add_index'" in told
    assert f"ledger {LEDGER_HEAD}: nothing differs" in told
    assert json.loads(run("database", "check", "ledger", "--json"))["ledger"]["differences"] == []


def test_what_is_behind_or_newer_is_told_with_its_cure(app, run, engine):
    run("database", "upgrade")
    for version, told in (
        ("0001", "books 0001: behind; `angzarr database upgrade books` brings it there"),
        ("9999", "books 9999: of a newer release, which alone can use it"),
    ):
        with engine.begin() as connection:
            connection.execute(update(books_version).values(version_num=version))
        assert told in run("database", "version")
        assert "books" in run("database", "check", "books", code=1)
    assert "newer release here too" in run("database", "upgrade", "books", code=1)


def test_one_that_is_away_keeps_no_others_from_it(make, run, tmp_path, monkeypatch):
    (tmp_path / "spoilt.db").write_bytes(b"no database" * 100)
    monkeypatch.setenv("ANGZARR_FACTS__URL", f"sqlite:///{tmp_path / 'spoilt.db'}")
    make()
    told = run("database", "upgrade", "facts", "books", code=1)
    assert told.startswith("Error: facts: ")
    assert f"\nbooks upgraded from nothing to {HEAD}\n" in told
    for command in ("version", "check"):
        told = run("database", command, code=1)
        assert "Error: facts: " in told
        assert {line.split()[0] for line in told.splitlines()} == {"Error:", *NAMES} - {"facts"}
    shown = json.loads(
        CliRunner().invoke(main, ["-A", "shop_for_tables", "database", "version", "--json"]).stdout
    )
    assert set(shown) == set(NAMES)
    assert list(shown["facts"]) == ["error"]
    assert shown["books"]["standing"] == "current"


def test_a_process_that_may_end_soon_leaves_the_upgrade_of_facts_to_others(
    make, run, engine, tmp_path, monkeypatch, caplog
):
    monkeypatch.setenv("ANGZARR_FACTS__URL", f"sqlite:///{tmp_path / 'all.db'}")
    app = make()
    run("database", "upgrade", "facts")
    with engine.begin() as connection:
        connection.execute(update(FACTS.version).values(version_num="0002"))
    app.ops.facts.append([a_fact()])
    app.ops.facts.close()
    assert "which only workers upgrade: run `angzarr database upgrade facts`" in caplog.text
    assert FACTS.revision_of(engine).found == "0002"


def test_a_setting_leaves_the_tables_to_the_command(make, run, monkeypatch):
    monkeypatch.setenv("ANGZARR_BOOKS_MIGRATE", "false")
    app = make()
    assert "books_migrate is off: run `angzarr database upgrade books`" in run(
        "saga", "list", code=1
    )
    run("database", "upgrade", "books")
    assert app.book("player", "p").next_sequence == 0
    run("saga", "list")


def test_what_is_not_kept_any_more_is_removed(app, run, engine):
    event_stores = app.ops.open_event_stores()
    for cause in ("old", "young"):
        event_stores.books.write(Write(address=PLACE, decision=deciding(event(), cause=cause)))
    with engine.begin() as connection:
        old = update(book_decisions).where(book_decisions.c.cause == "old")
        connection.execute(old.values(decided_at=LONG_AGO))
    old_cases = [a_case(status=status, changed_at=LONG_AGO) for status in RejectionStatus]
    for case in (
        *old_cases,
        a_case(status=RejectionStatus.COMPENSATED, changed_at=datetime.now(UTC)),
    ):
        event_stores.rejections.note(case)
    assert run("books", "prune").splitlines() == [
        "removed 1 decisions of event books that were made long ago",
        "removed 5 rejected commands that were closed long ago",
    ]
    assert event_stores.books.read(PLACE, cause="old").decision is None
    assert event_stores.books.read(PLACE, cause="young").decision is not None
    assert event_stores.books.read(PLACE).book.next_sequence == 2
    assert json.loads(run("books", "prune", "--json")) == {"decisions": 0, "rejections": 0}
    event_stores.close()


def test_what_is_kept_for_ever_stays(make, run, monkeypatch):
    for what in ("DECISIONS", "REJECTIONS"):
        monkeypatch.setenv(f"ANGZARR_BOOKS_KEEP_{what}", "for ever")
    app = make()
    event_stores = app.ops.open_event_stores()
    event_stores.rejections.note(a_case(status=RejectionStatus.COMPENSATED, changed_at=LONG_AGO))
    assert json.loads(run("books", "prune", "--json")) == {"decisions": 0, "rejections": 0}
    event_stores.close()
