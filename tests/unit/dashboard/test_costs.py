"""Costs over HTTP and on pages, and what a group has cost before its replay spends more."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal

import pytest

from angzarr.dashboard.api.route import PREFIX
from angzarr.dashboard.fact_services import COSTS_UNKNOWN
from angzarr.errors import ConfigurationError, StoreUnavailable
from angzarr.facts.cost_budget import BudgetPeriod, CostBudget
from angzarr.settings.dashboard import Role
from contracts.fact_reader import a_cost, an_error
from dashboard_caller import api, browser, problem

COSTS = f"{PREFIX}/costs"
EVIL = "<script>alert(1)</script>"


@pytest.fixture
def client(world):
    return api(world, Role.VIEWER)


@pytest.fixture
def person(world):
    return browser(world, Role.OPERATOR)


@pytest.fixture
def entry(world):
    (filed,) = world.file(1)
    return filed


def spend(world, entry, amount="1.10", id="a", **changes):
    data = {"retry_attempt": 0, "replay": 0, "operation": "charge"}
    given = {"event_id": entry.event_id, "tool_id": entry.handler_name, "data": data}
    fact = a_cost(id, amount, at=world.clock.now(), **(given | changes))
    assert world.facts.add(fact) is None


def test_costs_are_added_up_by_any_fields(world, client, entry):
    world.fail(entry)
    spend(world, entry, tenant_id="acme")
    spend(world, entry, "2", "b", tenant_id="acme", data={})
    told = client.get(COSTS).json()["costs"]
    assert told == [
        {"tenant": "acme", "tool": entry.handler_name, "currency": "EUR", "amount": "3.10",
         "failed": "1.10", "costs": 2, "failed_costs": 1}
    ]  # fmt: skip
    by = client.get(COSTS, params={"by": "cause,operation"}).json()["costs"]
    assert [(one["cause"], one["operation"], one["amount"]) for one in by] == [
        (None, None, "2"), ("HTTP_503", "charge", "1.10"),
    ]  # fmt: skip
    assert client.get(COSTS, params={"by": "", "tenant_id": "other"}).json()["costs"] == []
    assert client.get(COSTS, params={"by": "colour"}).status_code == 422


def test_costs_of_a_group_are_those_of_its_events_in_its_handler(world, client, entry):
    world.fail(entry)
    spend(world, entry)
    spend(world, entry, "50", "b", tool_id="another")
    spend(world, entry, "70", "c", event_id="another")
    told = client.get(f"{PREFIX}/groups/{entry.fingerprint}/costs").json()
    assert told == {
        "costs": [{"currency": "EUR", "amount": "1.10", "failed": "1.10", "costs": 1,
                   "failed_costs": 1}],
        "entries": 1, "more": False,
    }  # fmt: skip
    assert problem(client.get(f"{PREFIX}/groups/none/costs")) == "not-found"


def test_a_group_shows_what_it_has_cost_before_a_replay_spends_more(world, person, entry):
    world.fail(entry)
    spend(world, entry)
    said = "The events of its entries have cost 1.10 EUR (1.10 in runs that failed) so far."
    assert said in person.get(f"/groups/{entry.fingerprint}").text
    shown = person.get(f"/groups/{entry.fingerprint}/replay").text
    assert f"{said} A replay runs the handler again" in shown


def test_a_group_without_costs_says_nothing_of_them(person, entry):
    assert 'id="costs"' not in person.get(f"/groups/{entry.fingerprint}").text


def test_a_group_is_shown_where_facts_are_in_no_database(world, person, entry):
    world.facts_away = ConfigurationError("set facts.url")
    shown = person.get(f"/groups/{entry.fingerprint}")
    assert shown.status_code == 200
    assert 'id="costs"' not in shown.text


def test_a_group_says_that_its_costs_are_not_known_while_facts_are_away(world, person, entry):
    world.facts_away = StoreUnavailable("away")
    world.fail(entry)
    for path in ("", "/replay", ""):  # the last is not asked again
        shown = person.get(f"/groups/{entry.fingerprint}{path}")
        assert shown.status_code == 200
        assert COSTS_UNKNOWN in shown.text


def test_the_page_shows_costs_and_obeys_none_of_them(world, person, entry):
    run = {"retry_attempt": 0, "replay": 0, "outcome": "retried", "error_code": EVIL}
    error = an_error("x", event_id=entry.event_id, tool_id=entry.handler_name, data=run)
    assert world.facts.add(error) is None
    spend(world, entry, tenant_id=EVIL)
    shown = person.get("/costs").text
    assert "1.10" in shown
    assert EVIL not in shown
    assert EVIL not in person.get("/costs", params={"by": "cause"}).text
    assert entry.event_id in person.get("/costs", params={"by": "event"}).text


def a_budget(name="llm", amount="5", **changes):
    return CostBudget(name=name, amount=Decimal(amount), currency="EUR", **changes)


def test_budgets_say_what_is_left_and_when_they_begin_anew(world, client, entry):
    world.budgets += [a_budget(per=BudgetPeriod.DAY, tenant="*"), a_budget("all", "1")]
    spend(world, entry, tenant_id="acme")
    each, whole = client.get(f"{COSTS}/budgets").json()["budgets"]
    assert each["shares"] == [{"tenant": "acme", "tool": None, "spent": "1.10", "left": "3.90"}]
    assert whole["shares"] == [{"tenant": None, "tool": None, "spent": "1.10", "left": "0"}]
    since, until = (datetime.fromisoformat(each[name]) for name in ("since", "until"))
    assert since <= world.clock.now() < until
    assert until - since == timedelta(days=1)


def test_no_facts_are_asked_where_no_budget_is_set(world, client, person):
    world.facts_away = StoreUnavailable("away")
    assert client.get(f"{COSTS}/budgets").json() == {"budgets": []}
    world.budgets += [a_budget()]
    assert client.get(f"{COSTS}/budgets").status_code == 503
    world.facts_away = ConfigurationError("set facts.url")
    assert client.get(f"{COSTS}/budgets").status_code == 409
    assert "set facts.url" in person.get("/costs").text


def test_the_page_shows_each_budget_whatever_is_filtered(world, person, entry):
    assert 'id="budgets"' not in person.get("/costs").text
    world.budgets += [a_budget(EVIL, tenant="*"), a_budget("of-none", "77", tool="nowhere.*")]
    for number in range(11):
        spend(world, entry, id=f"a{number}", tenant_id=f"{EVIL}{number}")
    shown = person.get("/costs", params={"tenant_id": "another"}).text
    for text in ("3.90", "77", 'href="#budgets"', "Begins anew", "has more shares than these"):
        assert text in shown
    assert EVIL not in shown


def test_the_page_says_where_nothing_is_known(world, person):
    assert "Nothing was spent in this time. A handler says" in person.get("/costs").text
    world.facts_away = ConfigurationError("set facts.url")
    assert "set facts.url" in person.get("/costs").text
    assert api(world, Role.VIEWER).get(COSTS).status_code == 409
