from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from tests.contracts.fact_reader import a_cost, an_end, an_error
from tests.contracts.facts import AT, a_fact, facts_of

from angzarr.adapters.memory.facts import MemoryFactLog
from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.facts.pruner import FactPruner
from angzarr.adapters.sql.facts.reader import SqlFactReader
from angzarr.clock import SystemClock
from angzarr.errors import ConfigurationError, StoreUnavailable
from angzarr.facts.act_log import ActLog
from angzarr.settings.costs import CostBudgetSection
from angzarr.settings.settings import Settings
from apps import module_with

EVIL = "evil\x1b[2J[red]x[/red]\u202e\x07"
APP = """
from angzarr import Angzarr
app = Angzarr("shop", broker="memory://", store="memory://", facts={{"url": "{url}"}})
"""


class FactApp:
    """What the commands need of an app."""

    ops = context = property(lambda self: self)

    def __init__(self, url) -> None:
        self.url, self.settings = url, Settings()
        self.acts = ActLog(facts=MemoryFactLog, clock=SystemClock())

    def open_fact_store(self):
        if self.url is None:
            msg = "facts are kept in no database that can be asked: set facts.url"
            raise ConfigurationError(msg)
        return SqlFactReader(self.url)

    def open_fact_pruner(self):
        return FactPruner(build_engine(self.url))


@pytest.fixture
def app(tmp_path, monkeypatch):
    app = FactApp(f"sqlite:///{tmp_path / 'facts.db'}")
    monkeypatch.setitem(sys.modules, "shop_for_test", module_with(app=app))
    return app


@pytest.fixture
def store(app):
    store = SqlFactReader(app.url)
    yield store
    store.close()


@pytest.fixture
def add(store):
    def add(*facts):
        for fact in facts:
            assert store.add(fact) is None

    return add


@pytest.fixture
def said(works):
    return lambda *arguments: json.loads(works("fact", *arguments, "--json"))


def ids(told):
    return [one["id"] for one in told]


def test_facts_are_listed_newest_first_and_page_by_page(add, said):
    add(*(an_error(f"f{number}", number) for number in range(3)), an_end("end", 3))
    page = said("list", "--limit", "2")
    assert ids(page["facts"]) == ["end", "f2"]
    assert page["facts"][1]["data"] == {"resolved": True, "resolution_fact_id": "end"}
    assert ids(said("list", "--after", page["next"])["facts"]) == ["f1", "f0"]
    assert ids(said("list", "--order", "oldest", "--limit", "1")["facts"]) == ["f0"]


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (["--type", "error"], ["c"]),
        (["--subtype", "handled"], ["b", "a"]),
        (["--handler", "shop.sync"], ["c"]),
        (["--tool", "shop.sync"], ["c"]),
        (["--tenant", "t"], ["b"]),
        (["--entity", "root"], ["b"]),
        (["--event", "e"], ["c"]),
        (["--trace", "f" * 32], ["a"]),
        (["--asset", "printer-7"], ["b"]),
        (["--by", "ann@desk"], ["a"]),
        (["--person", "ann@desk", "--trace", "f" * 32], ["a"]),
        (["--since", "2026-05-04T04:00Z"], ["c"]),
        (["--until", "2026-05-04T04:00Z"], ["b", "a"]),
    ],
)
def test_facts_are_found_by_each_option(add, said, options, found):
    add(
        a_fact("a", trace_id="f" * 32, data={"by": "ann@desk"}),
        a_fact(
            "b", tenant_id="t", entity_id="root", asset_id="printer-7", at=AT + timedelta(seconds=1)
        ),
        an_error("c", 7200),
    )
    assert ids(said("list", *options)["facts"]) == found


def test_a_table_shows_what_happened_and_obeys_nothing(add, works):
    add(
        an_error("err-1", data={"error_code": "HTTP_503", "error_message": EVIL + "x" * 500}),
        an_end("end", 1),
        a_cost("cost", "0.10"),
    )
    shown = works("fact", "list")
    for text in ("error/transient", "HTTP_503: ", "evil", "[red]x[/red]", "err-1",
                 "lifecycle/handled", "0.10 EUR", "shop.sync"):  # fmt: skip
        assert text in shown
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "x" * 200 not in shown
    assert works("fact", "list", "--tenant", "none").strip() == "no facts"


def test_a_page_says_how_to_go_on(add, works):
    add(*facts_of("f", 3))
    shown = works("fact", "list", "--limit", "2")
    after = shown.strip().splitlines()[-1].removeprefix("more: --after ")
    assert "f-00000" in works("fact", "list", "--after", after)


def test_what_is_no_cursor_is_refused_in_one_sentence(app, fails):
    said = fails("fact", "list", "--after", "x", code=2)
    assert "'x' is not a cursor: pass the one that the page before printed" in said


def test_one_fact_is_shown_with_its_resolution_and_all_runs(add, said, works):
    data = {"error_code": "HTTP_503", "retry_attempt": 0, "delay_ms": 1500}
    add(an_error("one", 1, data=data), an_error("two", 2), an_end("end", 3))
    told = said("show", "end")
    assert told["resolved_facts"] == ["one", "two"]
    assert ids(told["runs"]) == ["one", "two", "end"]
    assert said("show", "one")["data"]["resolution_fact_id"] == "end"
    shown = works("fact", "show", "one")
    for text in ("resolved by", "end", "1500 ms", "this", '"error_code": "HTTP_503"'):
        assert text in shown
    assert "one, two" in works("fact", "show", "end")


def test_an_unknown_fact_is_told_in_one_sentence(app, fails):
    assert "there is no fact 'none'; `angzarr fact list` shows them" in fails(
        "fact", "show", "none"
    )


def test_facts_are_counted_of_the_last_day_unless_said(add, said, works):
    now = datetime.now(UTC)
    add(
        a_fact("old", at=now - timedelta(days=2)),
        a_fact("new", at=now - timedelta(hours=1), data={"by": "ann@desk"}),
        an_error("error", at=now - timedelta(hours=2)),
    )
    counts = said("stats")["counts"]
    assert {(one["type"], one["subtype"], one["facts"]) for one in counts} == {
        ("lifecycle", "handled", 1), ("error", "transient", 1),
    }  # fmt: skip
    assert said("stats", "--since", "3d", "--by", "tool")["counts"] == [
        {"tool": None, "facts": 2}, {"tool": "shop.sync", "facts": 1},
    ]  # fmt: skip
    assert said("stats", "--person", "ann@desk", "--by", "person", "--by", "asset")["counts"] == [
        {"person": "ann@desk", "asset": None, "facts": 1},
    ]  # fmt: skip
    assert said("stats", "--event", "e")["since"] is None
    assert "error" in works("fact", "stats", "--by", "type")
    assert "the 1 largest; --limit shows more" in works("fact", "stats", "--limit", "1")
    assert works("fact", "stats", "--tenant", "none").strip() == "no facts"


def test_facts_are_exported_oldest_first_into_a_new_file(add, works, fails, tmp_path):
    add(*facts_of("many", 2_100), an_error("error", -1))
    file = tmp_path / "facts.jsonl"
    assert "exported 2101 facts" in works("fact", "export", "--to", str(file))
    told = [json.loads(line) for line in file.read_text().splitlines()]
    assert ids(told) == ["error", *(one.id for one in facts_of("many", 2_100))]
    assert told[0]["data"] == {"resolved": False, "resolution_fact_id": None}
    assert "it exists; name another" in fails("fact", "export", "--to", str(file))


def test_facts_are_exported_to_standard_output(add, run):
    add(*facts_of("few", 3))
    result = run("fact", "export", "--limit", "2")
    assert ids(map(json.loads, result.stdout.splitlines())) == ["few-00000", "few-00001"]
    assert "exported 2 facts" in result.stderr


def test_old_facts_are_deleted_once_a_file_has_them(add, works, fails, tmp_path):
    add(*facts_of("old", 2_100), a_fact("new", at=AT + timedelta(days=2)))
    file = tmp_path / "old.jsonl"
    before = (AT + timedelta(days=1)).isoformat()
    said = works("fact", "prune", "--before", before, "--export", str(file), "--yes")
    assert "deleted 2,100 facts" in said
    assert ids(map(json.loads, file.read_text().splitlines())) == ids_of("old", 2_100)
    assert file.stat().st_mode & 0o077 == 0
    left = [json.loads(line) for line in works("fact", "tail", "--json").splitlines()]
    assert ids(left) == ["new"]
    assert "no fact is older" in works("fact", "prune", "--before", before, "--without-export")
    later = ("--before", (AT + timedelta(days=3)).isoformat(), "--yes")
    assert "it exists; name another" in fails("fact", "prune", *later, "--export", str(file))
    assert ids(json.loads(one) for one in works("fact", "tail", "--json").splitlines()) == ["new"]


def test_facts_that_are_still_needed_are_not_deleted(add, app, run):
    add(*facts_of("old", 3))
    app.settings.costs.budgets["all"] = CostBudgetSection(amount=Decimal(9), currency="EUR")
    for before, why in (
        ((datetime.now(UTC) + timedelta(days=1)).isoformat(), "--before is in the future"),
        ("0s", "budget all is added up from facts since"),
    ):
        result = run("fact", "prune", "--before", before, "--without-export", "--yes")
        assert result.exit_code == 2
        assert why in result.output
    assert run("fact", "list", "--json").output.count('"old-') == 3


def test_what_was_deleted_before_a_batch_fails_is_told(add, app, run, tmp_path, monkeypatch):
    add(*facts_of("old", 1_500))
    log = MemoryFactLog()
    app.acts = ActLog(facts=lambda: log, clock=SystemClock())
    deleted = FactPruner.prune_some

    def fail_at_last(pruner, before, export, limit):
        if log.read()[1:] == [] and pruner.count(before) == 500:
            raise StoreUnavailable("the database is away")
        return deleted(pruner, before, export, limit)

    monkeypatch.setattr(FactPruner, "prune_some", fail_at_last)
    assert run("fact", "prune", "--before", "1d", "--without-export", "--yes").exit_code == 1
    _, end = log.read()
    assert (end.subtype, end.data["facts"]) == ("facts_pruned", 1_000)


@pytest.mark.parametrize("options", [(), ("--export", "x", "--without-export")])
def test_who_prunes_says_where_facts_go(run, options):
    result = run("fact", "prune", "--before", "90d", *options)
    assert result.exit_code == 2
    assert "say --export FILE, or --without-export" in result.output


def ids_of(prefix, count):
    return [one.id for one in facts_of(prefix, count)]


def test_the_tail_has_the_last_facts_in_order_of_arrival(add, works):
    add(a_fact("late", at=AT + timedelta(days=9)), *facts_of("f", 3))
    lines = works("fact", "tail", "-n", "2").splitlines()
    assert len(lines) == 2
    told = [json.loads(line) for line in works("fact", "tail", "--json").splitlines()]
    assert ids(told) == ["late", "f-00000", "f-00001", "f-00002"]
    assert works("fact", "tail", "-n", "0") == ""


def test_a_tail_obeys_nothing(add, works):
    add(an_error("e", data={"error_message": f"{EVIL}\nsecond line"}))
    (line,) = works("fact", "tail").splitlines()
    assert "error/transient  shop.sync  event e  evil" in line
    assert "\x1b" not in line


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_tail_follows_until_it_is_stopped(add, store, app, tmp_path, number):
    add(a_fact("before"))
    (tmp_path / "shop_of_tail.py").write_text(APP.format(url=app.url))
    command = [sys.executable, "-m", "angzarr", "-A", "shop_of_tail:app", "fact", "tail", "-f",
               "--json"]  # fmt: skip
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["id"] == "before"
        add(a_fact("after"))
        assert json.loads(process.stdout.readline())["id"] == "after"
        process.send_signal(number)
        assert process.stdout.read() == b""
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_a_tail_waits_for_a_database_that_goes_away(add, app, store, monkeypatch, run):
    add(a_fact("before"))
    asked = itertools.count()
    whole = SqlFactReader.find

    def find(self, *arguments, **options):
        number = next(asked)
        if number in {3, 4}:  # the first two looks
            raise StoreUnavailable("the database is away")
        if number == 5:
            add(a_fact("after"))
        if number == 9:
            os.kill(os.getpid(), signal.SIGTERM)
        return whole(self, *arguments, **options)

    monkeypatch.setattr(SqlFactReader, "find", find)
    result = run("fact", "tail", "-f", "--json", "--every", "1s")
    assert result.exit_code == 0
    assert ids(map(json.loads, result.stdout.splitlines())) == ["before", "after"]
    assert result.stderr == "the database is away; trying again\n"


def test_an_app_without_a_database_of_facts_says_what_to_set(app, fails):
    app.url = None
    assert "set facts.url" in fails("fact", "list")
