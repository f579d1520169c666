"""Amounts are exact, and what no report could add up is refused in one sentence."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.errors import CostBudgetSpentError, InvalidCost
from angzarr.facts.cost import amount_of, cost_of, exact_sum, total, units_of
from angzarr.facts.cost_budget import BudgetPeriod, BudgetScope, CostBudget, scopes_of
from angzarr.facts.currencies import CURRENCIES

AMOUNTS = st.decimals(0, 10**17, places=6)
NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)


@given(AMOUNTS)
def test_an_amount_is_what_was_said_in_every_form(amount):
    assert amount_of(amount) == amount_of(str(amount)) == amount_of(f"{amount:f}") == amount


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (0.05, 'a text such as "0.05", not 0.05 (float)'),
        (True, "not True (bool)"),
        (None, "not None (NoneType)"),
        ("-1", "must be a number from 0 on, not -1"),
        (-3, "must be a number from 0 on, not -3"),
        ("NaN", "must be a number from 0 on, not NaN"),
        (Decimal("Infinity"), "must be a number from 0 on, not Infinity"),
        ("ten", "a number such as \"0.05\", not 'ten'"),
        ("1e30", "at most 18 digits before the point"),
        ("0." + "1" * 19, "18 after it"),
        ("1_000", "not '1_000'"),
        (" 1", "not ' 1'"),
        ("\N{ARABIC-INDIC DIGIT ONE}", "a number such as"),
        ("1e99999999999999999999", "a number such as"),
        ("-inf", "must be a number from 0 on, not -Infinity"),
        ("1\x00", "not '1\ufffd'"),
    ],
)
def test_what_is_no_amount_is_refused_in_one_sentence(given, says):
    with pytest.raises(InvalidCost) as caught:
        amount_of(given)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("EURO", 'unknown currency "EURO"; did you mean "EUR"?'),
        ("eur", 'unknown currency "eur"'),
        ("XXX", 'unknown currency "XXX"'),
        ("", 'unknown currency "": write a code of ISO 4217, such as "EUR"'),
        (None, 'unknown currency "None"'),
    ],
)
def test_an_unknown_currency_is_refused_with_the_nearest(code, says):
    with pytest.raises(InvalidCost) as caught:
        cost_of("1", code)
    assert str(caught.value).startswith(says)


def test_currencies_are_three_capitals():
    assert all(len(code) == 3 and code.isalpha() and code.isupper() for code in CURRENCIES)


@given(st.lists(AMOUNTS, max_size=30))
def test_sums_are_exact_and_have_no_order(amounts):
    costs = [cost_of(amount, "EUR") for amount in amounts]
    cents = sum(int(amount.scaleb(6)) for amount in amounts)
    assert total(costs).get("EUR", Decimal(0)) == Decimal(cents).scaleb(-6)
    assert total(costs) == total(reversed(costs))


def test_currencies_are_never_added_to_each_other():
    assert total([cost_of(1, "EUR"), cost_of(2, "USD"), cost_of("0.5", "EUR")]) == {
        "EUR": Decimal("1.5"), "USD": Decimal(2),
    }  # fmt: skip


def test_an_amount_without_decimals_stays_whole():
    assert str(amount_of(Decimal("1E+3"))) == "1000"


@pytest.mark.parametrize(
    ("given", "amount"), [("-0", "0"), ("+1", "1"), (".5", "0.5"), ("5.", "5"), ("1e3", "1000")]
)
def test_an_amount_may_be_written_in_several_ways(given, amount):
    assert str(amount_of(given)) == amount


def test_units_become_json():
    given = {"model": "small-2", "input_tokens": 1200, "price": Decimal("0.15"), "share": 0.5}
    assert json.loads(json.dumps(units_of(given), allow_nan=False)) == given | {"price": "0.15"}
    assert units_of(None) == {}


@pytest.mark.parametrize(
    "units",
    [
        {"a": True}, {"a": None}, {"a": []}, {"a": float("nan")}, {"a": Decimal("Infinity")},
        {"": 1}, {1: 1}, {"a" * 201: 1}, {"a": "x" * 201}, {"a": 2**63}, [1],
        {str(n): n for n in range(21)},
    ],
)  # fmt: skip
def test_other_units_are_refused(units):
    with pytest.raises(InvalidCost):
        units_of(units)


def budget(**changes):
    given = {"name": "b", "amount": Decimal(10), "currency": "EUR"}
    return CostBudget(**(given | changes))


def test_a_budget_lasts_a_day_or_a_month_of_utc():
    assert budget(per=BudgetPeriod.DAY).scope("t", "h", NOON).since == datetime(
        2026, 11, 29, tzinfo=UTC
    )
    assert budget().scope("t", "h", NOON).since == datetime(2026, 11, 1, tzinfo=UTC)


@given(st.datetimes(min_value=datetime(2000, 1, 1), max_value=datetime(2100, 1, 1)))  # noqa: DTZ001 - hypothesis adds the zone
@pytest.mark.parametrize("per", BudgetPeriod)
def test_a_budget_begins_anew_where_its_next_day_or_month_begins(per, naive):
    now, bound = naive.replace(tzinfo=UTC), budget(per=per)
    until, instant = bound.until(now), timedelta(microseconds=1)
    assert bound.since(now) <= now < until
    assert bound.since(until) == until
    assert bound.since(until - instant) == bound.since(now)


def test_a_budget_is_of_all_of_one_or_of_each():
    assert budget().scope("t", "h", NOON)[:2] == (None, None)
    assert budget(tenant="*").scope("t", "h", NOON)[:2] == ("t", None)
    assert budget(tenant="t", tool="h*").scope("t", "h", NOON)[:2] == ("t", "h")
    others = [budget(tenant="u"), budget(tenant="*"), budget(tool="x.*")]
    assert list(scopes_of(others, None, "h", NOON)) == []


@given(AMOUNTS, AMOUNTS)
def test_a_budget_is_spent_once_its_amount_is_reached(amount, spent):
    bound = budget(amount=amount, tenant="*")
    scope = BudgetScope("acme", None, "EUR", NOON)
    if spent < amount:
        bound.check(scope, spent)
        return
    said = f"of {amount:f} EUR since 2026-11-29 by tenant acme"
    with pytest.raises(CostBudgetSpentError, match=re.escape(said)):
        bound.check(scope, spent)


@given(AMOUNTS, AMOUNTS)
def test_a_sum_minus_a_part_is_the_rest(one, other):
    assert exact_sum(exact_sum(one, other), -other) == one
