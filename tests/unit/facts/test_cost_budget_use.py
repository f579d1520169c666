"""What people see of a budget is what deliveries are judged by, whosever it is."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.adapters.memory.fact_reader import MemoryFactReader
from angzarr.adapters.memory.facts import MemoryFactLog
from angzarr.facts.cost_budget import CostBudget
from angzarr.facts.cost_budget_use import MOST_SHARES, use_json, uses_of
from angzarr.facts.query import LONGEST_PAGE
from angzarr.wiring.costs import spent
from contracts.fact_reader import a_cost

NOW = datetime(2026, 12, 31, 12, tzinfo=UTC)
TENANTS, TOOLS = (None, "acme", "beta"), (None, "shop.llm", "shop.llm.fast", "mail")
AMOUNTS = st.decimals(0, 100, places=2)


def a_budget(**changes):
    given = {"name": "b", "amount": Decimal(10), "currency": "EUR"}
    return CostBudget(**(given | changes))


def reader_of(*facts):
    log = MemoryFactLog()
    log.append(facts)
    return MemoryFactReader(log)


def use_of(budget, *facts):
    (use,) = uses_of(reader_of(*facts), [budget], NOW)
    return use


@given(
    costs=st.lists(
        st.tuples(
            AMOUNTS, st.sampled_from(["EUR", "JPY"]), st.sampled_from(TENANTS),
            st.sampled_from(TOOLS), st.sampled_from([0, 40]),
        ),
        max_size=8,
    ),
    tenant=st.sampled_from([*TENANTS, "*"]),
    tool=st.sampled_from([*TOOLS, "shop.*", "*", "shop.ll[lm]"]),
    amount=AMOUNTS,
)  # fmt: skip
def test_each_share_is_the_sum_that_judges_deliveries(costs, tenant, tool, amount):
    budget = a_budget(tenant=tenant, tool=tool, amount=amount)
    facts = [
        a_cost(str(number), str(given), currency, tenant_id=whose, tool_id=which,
               at=datetime.fromtimestamp(NOW.timestamp() - age * 86_400, UTC))
        for number, (given, currency, whose, which, age) in enumerate(costs)
    ]  # fmt: skip
    reader, use = reader_of(*facts), use_of(budget, *facts)
    for share in use.shares:
        scope = budget.scope(share.tenant_id or tenant, share.tool_id or tool or "", NOW)
        assert share.spent == spent(reader, scope)
        assert share.left == max(amount - share.spent, 0)
    assert [one.spent for one in use.shares] == sorted(
        (one.spent for one in use.shares), reverse=True
    )
    shown = {(one.tenant_id, one.tool_id) for one in use.shares}
    for _, currency, whose, which, age in costs:
        scope = budget.scope(whose, which or "", NOW)
        if (currency, age) == ("EUR", 0) and scope is not None and not (tool and which is None):
            assert scope[:2] in shown


def test_a_budget_begins_anew_in_the_next_year():
    use = use_of(a_budget())
    assert (use.since, use.until) == (
        datetime(2026, 12, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC),
    )  # fmt: skip


@pytest.mark.parametrize("whose", [{}, {"tenant": "acme"}, {"tool": "shop.llm"}])
def test_a_budget_that_is_not_of_each_is_whole_before_anything_is_spent(whose):
    (share,) = use_of(a_budget(**whose)).shares
    assert (share.spent, share.left) == (0, 10)


def test_only_the_largest_shares_are_shown():
    costs = [a_cost(str(n), str(n), tenant_id=f"t{n}", at=NOW) for n in range(MOST_SHARES + 1)]
    use = use_of(a_budget(tenant="*"), *costs)
    assert (len(use.shares), use.shares[0].tenant_id, use.more) == (10, "t10", True)
    told = use_json(use)
    assert told["shares"][0] == {"tenant": "t10", "tool": None, "spent": "10", "left": "0"}


def test_many_who_spend_in_another_currency_hide_no_share():
    others = [a_cost(str(n), "9", "AED", tenant_id=f"t{n}", at=NOW) for n in range(LONGEST_PAGE)]
    use = use_of(a_budget(tenant="*"), *others, a_cost("e", "1", tenant_id="acme", at=NOW))
    assert [(one.tenant_id, one.spent) for one in use.shares] == [("acme", 1)]


def test_a_pattern_whose_handlers_may_be_beyond_what_is_read_says_that_there_may_be_more():
    others = [
        a_cost(str(number), "2", tenant_id="acme", tool_id=f"mail.{number}", at=NOW)
        for number in range(LONGEST_PAGE)
    ]
    mine = a_cost("mine", "1", tenant_id="acme", tool_id="shop.llm", at=NOW)
    use = use_of(a_budget(tool="shop.*"), *others, mine)
    assert (list(use.shares), use.more) == ([], True)
    use = use_of(a_budget(tool="shop.*"), *others[:-2], mine)
    assert ([one.spent for one in use.shares], use.more) == ([Decimal(1)], False)
