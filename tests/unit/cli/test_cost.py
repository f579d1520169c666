"""angzarr cost, on SQLite."""

from __future__ import annotations

import csv
import io
import json
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from click.testing import CliRunner
from tests.apps import apps

from angzarr.adapters.sql.facts.reader import SqlFactReader
from angzarr.cli.main import main
from angzarr.facts.fact import Cost, Fact
from apps import module_with

NOW = datetime.now(UTC)
#: Counts for the budgets of today also if midnight comes before the test ends.
SOON = NOW + timedelta(hours=1)


def a_cost(id, amount, currency="EUR", *, attempt=2, at=NOW, **changes):
    data = {"operation": "charge", "retry_attempt": attempt, "replay": 0}
    return Fact(
        id=id, type="cost", subtype="tool_usage", at=at, data=data, event_id="e1",
        cost=Cost(amount=Decimal(amount), currency=currency), **changes,
    )  # fmt: skip


@pytest.fixture
def make(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with apps(broker="memory://", store="memory://") as make:

        def made(**settings):
            app = make(facts={"url": f"sqlite:///{tmp_path}/facts.db", "log": False}, **settings)
            monkeypatch.setitem(sys.modules, "shop_for_costs", module_with(app=app))
            return app

        yield made


@pytest.fixture
def book(tmp_path):
    reader = SqlFactReader(f"sqlite:///{tmp_path}/facts.db")
    yield reader
    reader.close()


@pytest.fixture
def run():
    def run(*arguments, code=0):
        result = CliRunner().invoke(main, ["-A", "shop_for_costs", "cost", *arguments])
        assert result.exit_code == code, result.output
        return result.output

    return run


@pytest.fixture
def spent(make, book):
    make()
    code = {"error_code": "HTTP_503", "outcome": "retried", "retry_attempt": 1, "replay": 0}
    for fact in (
        Fact(
            id="error-1",
            type="error",
            subtype="external",
            at=NOW,
            data=code,
            event_id="e1",
            tool_id="shop.llm",
        ),
        a_cost("a", "1.10", tenant_id="acme", tool_id="shop.llm", attempt=1),
        a_cost("b", "2.20", tenant_id="acme", tool_id="shop.llm"),
        a_cost("c", "100", "JPY", tenant_id="=evil()", tool_id="shop.llm"),
        a_cost("d", "9", tenant_id="acme", tool_id="old", at=NOW - timedelta(days=40)),
    ):
        assert book.add(fact) is None


@pytest.mark.usefixtures("spent")
def test_a_report_adds_up_exactly_and_tells_what_failed(run):
    told = json.loads(run("report", "--format", "json", "--since", "30d"))
    assert told["costs"] == [
        {"tenant": "acme", "tool": "shop.llm", "currency": "EUR", "amount": "3.30",
         "failed": "1.10", "costs": 2, "failed_costs": 1},
        {"tenant": "=evil()", "tool": "shop.llm", "currency": "JPY", "amount": "100",
         "failed": "0", "costs": 1, "failed_costs": 0},
    ]  # fmt: skip


@pytest.mark.usefixtures("spent")
def test_a_report_is_by_any_fields_and_of_any_filter(run):
    options = ("--format", "json", "--tenant", "acme", "--by", "cause, operation")
    told = json.loads(run("report", *options))["costs"]
    assert [(one["cause"], one["operation"], one["amount"]) for one in told] == [
        (None, "charge", "11.20"), ("HTTP_503", "charge", "1.10"),
    ]  # fmt: skip
    whole = json.loads(run("report", "--format", "json", "--by", ""))["costs"]
    assert json.loads(run("report", "--json", "--by", ""))["costs"] == whole
    assert [(one["currency"], one["amount"]) for one in whole] == [("EUR", "12.30"), ("JPY", "100")]


@pytest.mark.usefixtures("spent")
def test_no_spreadsheet_takes_a_tenant_for_a_formula(run):
    rows = list(csv.reader(io.StringIO(run("report", "--format", "csv", "--since", "30d"))))
    assert rows[0] == ["tenant", "tool", "currency", "amount", "failed", "costs", "failed_costs"]
    assert rows[1] == ["acme", "shop.llm", "EUR", "3.30", "1.10", "2", "1"]
    assert rows[2][0] == "'=evil()"


@pytest.mark.usefixtures("spent")
def test_a_table_shows_the_same(run):
    said = run("report", "--since", "30d")
    assert "3.30" in said
    assert "1.10" in said
    assert "more sums" not in said
    assert "more sums than 1" in run("report", "--limit", "1")


def test_nothing_spent_is_said_so(make, run):
    make()
    assert run("report").startswith("no costs: handlers say what they spend")
    assert run("budgets").startswith("no budgets: set costs.budgets")


def test_an_unknown_field_is_refused_with_those_that_there_are(make, run):
    make()
    assert "'colour' is none of tenant, tool, day" in run("report", "--by", "colour", code=2)


def test_budgets_show_what_is_spent_and_left_and_when_they_begin_anew(make, run, book):
    make(
        costs={"budgets": {
            "each": {"amount": "10", "currency": "EUR", "tenant": "*"},
            "llm": {"amount": "5", "currency": "EUR", "per": "day", "tool": "shop.llm*"},
            "all": {"amount": 100.5, "currency": "JPY"},
        }}
    )  # fmt: skip
    book.add(a_cost("a", "4", tenant_id="one", tool_id="shop.llm.a", at=SOON))
    book.add(a_cost("b", "16", tenant_id="two", tool_id="shop.mail", at=SOON))
    each, llm, yen = json.loads(run("budgets", "--json"))["budgets"]
    assert each["shares"] == [
        {"tenant": "two", "tool": None, "spent": "16", "left": "0"},
        {"tenant": "one", "tool": None, "spent": "4", "left": "6"},
    ]
    assert llm["shares"] == [{"tenant": None, "tool": "shop.llm.a", "spent": "4", "left": "1"}]
    assert yen["shares"] == [{"tenant": None, "tool": None, "spent": "0", "left": "100.5"}]
    for one in (each, llm, yen):
        since, until = map(datetime.fromisoformat, (one["since"], one["until"]))
        assert since < until
    table = run("budgets")
    for shown in ("each", "two", "16", "100.5", "begins anew"):
        assert shown in table


def test_a_budget_of_each_that_none_has_touched_is_whole(make, run):
    make(costs={"budgets": {"each": {"amount": "10", "currency": "EUR", "tenant": "*"}}})
    (told,) = json.loads(run("budgets", "--json"))["budgets"]
    assert (told["shares"], told["more"]) == ([], False)
    assert "10" in run("budgets")


def test_more_shares_than_are_shown_are_named_with_where_all_are(make, run, book):
    make(costs={"budgets": {"each": {"amount": "10", "currency": "EUR", "tenant": "*"}}})
    for number in range(11):
        book.add(a_cost(str(number), "1", tenant_id=f"t{number}", at=SOON))
    told = run("budgets").splitlines()[-1]
    assert told.startswith(
        "each: there may be more shares than these; angzarr cost report --by tenant --since "
    )
    command = told.partition("angzarr cost ")[2].removesuffix(" has them").split()
    assert len(json.loads(run(*command, "--json"))["costs"]) == 11


@pytest.mark.parametrize(
    ("budget", "says"),
    [
        ({"amount": "-1", "currency": "EUR"}, "costs.budgets.b.amount"),
        ({"amount": "0", "currency": "EUR"}, "costs.budgets.b.amount"),
        ({"amount": "1", "currency": "EURO"}, 'did you mean "EUR"'),
        ({"amount": "1", "currency": "EUR", "per": "week"}, "costs.budgets.b.per"),
    ],
)
def test_a_budget_that_cannot_be_is_refused_at_start(make, budget, says):
    from angzarr.errors import ConfigurationError

    with pytest.raises(ConfigurationError, match=says):
        make(costs={"budgets": {"b": budget}})
