"""angzarr dlq groups, dlq group and ledger, on SQLite."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner
from sqlalchemy import update
from tests.contracts.fact_reader import a_cost
from tests.contracts.groups import decide
from tests.contracts.ledger import letter_of, resolve

from angzarr.adapters.memory.fact_reader import MemoryFactReader
from angzarr.adapters.memory.facts import MemoryFactLog
from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.ledger.database import LedgerDatabase, SqlUpkeep
from angzarr.adapters.sql.ledger.groups import SqlGroups
from angzarr.adapters.sql.ledger.store import SqlLedger
from angzarr.adapters.sql.ledger.tables import HEAD, ledger_groups, ledger_version
from angzarr.cli.main import main
from angzarr.clock import SystemClock
from angzarr.errors import ConfigurationError, StoreUnavailable
from angzarr.facts.act_log import ActLog
from apps import module_with


class FakeApp:
    """What these commands need of an app."""

    ops = context = property(lambda self: self)

    def __init__(self, url: str) -> None:
        self.acts = ActLog(facts=MemoryFactLog, clock=SystemClock())
        self.engine = build_engine(url)
        self.facts = None

    def open_ledger(self):
        return SqlLedger(LedgerDatabase(self.engine))

    def open_groups(self):
        return SqlGroups(LedgerDatabase(self.engine))

    def open_fact_store(self, _within):
        if self.facts is None:
            raise ConfigurationError("facts are kept nowhere")
        return self.facts

    def open_ledger_upkeep(self):
        return SqlUpkeep(LedgerDatabase(self.engine))


@pytest.fixture
def app(tmp_path, monkeypatch):
    app = FakeApp(f"sqlite:///{tmp_path / 'ledger.db'}")
    monkeypatch.setitem(sys.modules, "shop_for_groups", module_with(app=app))
    yield app
    app.engine.dispose()


@pytest.fixture
def run(app):
    def run(*arguments, code=0):
        result = CliRunner().invoke(main, ["-A", "shop_for_groups", *arguments])
        assert result.exit_code == code, result.output
        return result.output

    return run


@pytest.fixture
def filled(app):
    first, _ = app.open_ledger().add_failed_events(
        [
            letter_of("e1", fingerprint="aa11", error_message="\x1b[31mred [bold]"),
            letter_of("e2", fingerprint="aa22", handler="mail.send"),
        ]
    )
    decide(app.open_ledger(), first)
    resolve(app.open_ledger(), first.id, "ann")
    return app


def test_groups_with_open_entries_are_listed(filled, run):
    shown = run("dlq", "groups")
    assert "aa22" in shown
    assert "aa11" not in shown
    shown = run("dlq", "groups", "--all")
    assert "aa11" in shown
    assert "\x1b" not in shown
    assert "[bold]" in shown


def test_groups_are_json_for_programs_page_by_page(filled, run):
    page = json.loads(run("dlq", "groups", "--all", "--limit", "1", "--json"))
    assert len(page["groups"]) == 1
    rest = json.loads(run("dlq", "groups", "--all", "--after", page["next"], "--json"))
    assert rest["next"] is None
    names = {one["fingerprint"] for one in (*page["groups"], *rest["groups"])}
    assert names == {"aa11", "aa22"}
    found = json.loads(run("dlq", "groups", "--handler", "mail.send", "--json"))
    assert [one["open_entries"] for one in found["groups"]] == [1]


def test_bad_cursor_is_said_in_one_sentence(filled, run):
    assert "is not a cursor" in run("dlq", "groups", "--after", "soon", code=2)


def test_group_is_shown_with_its_entries_by_status(filled, run):
    found = json.loads(run("dlq", "group", "aa1", "--json"))
    assert found["by_status"] == {"resolved": 1}
    assert found["latest_entry_id"]
    assert found["history"] == []
    shown = run("dlq", "group", "aa1")
    assert "angzarr dlq list --group aa11" in shown
    assert "\x1b" not in shown


def test_group_is_amended_and_tells_who_did_it(filled, run):
    before = datetime.now(UTC) + timedelta(days=2) - timedelta(seconds=1)
    out = run(
        "dlq", "group", "aa22", "--owner", "ann", "--note", "DNS", "--status", "acknowledged",
        "--mute", "2d", "--json",
    )  # fmt: skip
    found = json.loads(out)
    assert (found["owner"], found["note"], found["status"]) == ("ann", "DNS", "acknowledged")
    assert before <= datetime.fromisoformat(found["muted_until"]) <= before + timedelta(minutes=1)
    (line,) = found["history"]
    assert line["what"] == "amended"
    assert "@" in line["who"]
    found = json.loads(run("dlq", "group", "aa22", "--unmute", "--owner", "", "--json"))
    assert (found["muted_until"], found["owner"], found["note"]) == (None, "", "DNS")
    assert "DNS" in run("dlq", "group", "aa22")


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        (("bb",), "there is no group 'bb'", 1),
        (("aa",), "give more of the fingerprint", 2),
        (("aa11", "--mute", "soon"), "write 90s, 15m, 2h, 1d12h or 1w", 2),
        (("aa11", "--mute", "0d"), "more than 0 s and at most 366 d", 2),
        (("aa11", "--mute", "2d", "--unmute"), "contradict", 2),
        (("aa11", "--status", "regressed"), "not by hand", 1),
        (("aa11", "--note", "x" * 5000), "4,000 characters at most", 1),
    ],
)
def test_what_cannot_be_done_is_said_in_one_sentence(filled, run, arguments, said, code):
    output = run("dlq", "group", *arguments, code=code)
    assert said in " ".join(output.split())


def test_amendment_of_what_changed_meanwhile_is_refused(filled, run, monkeypatch):
    monkeypatch.setattr(SqlGroups, "amend", lambda *_args, **_words: None)
    assert "changed meanwhile" in run("dlq", "group", "aa11", "--owner", "ann", code=1)


# -- the tables -----------------------------------------------------------------------------


def test_tables_are_made_and_their_revision_is_told(app, run):
    assert json.loads(run("ledger", "version", "--json"))["standing"] == "missing"
    assert f"to {HEAD}" in run("ledger", "upgrade")
    assert "nothing to do" in run("ledger", "upgrade")
    assert HEAD in run("ledger", "version")
    assert "nothing differs" in run("ledger", "check")


def test_check_fails_where_tables_differ_or_are_newer(app, run):
    run("ledger", "upgrade")
    with app.engine.begin() as connection:
        connection.exec_driver_sql("DROP INDEX ledger_entries_of_group")
    assert "ledger_entries_of_group" in run("ledger", "check", code=1)
    with app.engine.begin() as connection:
        connection.execute(update(ledger_version).values(version_num="9999"))
    found = json.loads(run("ledger", "check", "--json", code=1))
    assert found["standing"] == "newer"
    assert "newer release here too" in run("ledger", "upgrade", code=1)


def test_recount_says_what_it_found_and_mends_it(filled, run):
    with filled.engine.begin() as connection:
        connection.execute(update(ledger_groups).values(entries=9))
    assert "2 groups, 2 wrong" in run("ledger", "recount", "--dry-run", code=1)
    assert json.loads(run("ledger", "recount", "--json"))["wrong"] == ["aa11", "aa22"]
    assert "2 groups, 0 mended" in run("ledger", "recount")


def test_a_group_tells_what_it_has_cost(app, run):
    with closing(app.open_ledger()) as ledger:
        entry = ledger.add_failed_event(letter_of("e1"))
    app.facts = MemoryFactReader(MemoryFactLog())
    app.facts.add(a_cost("a", "1.50", event_id="e1", tool_id=entry.handler_name))
    said = "The events of its entries have cost 1.50 EUR (0 in runs that failed) so far."
    assert said in run("dlq", "group", entry.fingerprint)
    told = json.loads(run("dlq", "group", entry.fingerprint, "--json"))
    assert [one["amount"] for one in told["costs"]] == ["1.50"]


def test_a_group_is_shown_where_costs_cannot_be_asked(app, run):
    with closing(app.open_ledger()) as ledger:
        entry = ledger.add_failed_event(letter_of("e1"))

    class Away(MemoryFactReader):
        def costs(self, *_asked, **_options):
            raise StoreUnavailable("the database is away")

    app.facts = Away(MemoryFactLog())
    assert "costs are not known: the database is away" in run("dlq", "group", entry.fingerprint)
