"""Uses of cost budgets: what is spent of each in its day or month, and what is left (spec F2).

What people are shown. Deliveries are judged by `delivery.costs`, which also knows what has not
become a fact yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, NamedTuple

from angzarr.facts.cost import exact_sum
from angzarr.facts.cost_budget import EACH, CostBudget
from angzarr.facts.query import LONGEST_PAGE, CostSum, FactField, FactQuery, FactReader

#: Shares of one budget that people are shown: those of which most is spent.
MOST_SHARES: Final = 10
#: What makes a handler a pattern for `fnmatch`.
_WILD: Final = frozenset("*?[")


class BudgetShare(NamedTuple):
    """What one tenant, one handler, both or, where both are None, all have spent of a budget.

    `left` is never below 0: an operation that was under way may have spent more.
    """

    tenant_id: str | None
    tool_id: str | None
    spent: Decimal
    left: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class CostBudgetUse:
    """A budget from `since` until it begins anew.

    `shares` begin with the largest. A budget that each tenant or handler has may have none yet,
    or `more` than are here: they may be among sums that one question does not read.
    """

    budget: CostBudget
    since: datetime
    until: datetime
    shares: Sequence[BudgetShare]
    more: bool = False


def uses_of(
    reader: FactReader, budgets: Iterable[CostBudget], now: datetime
) -> list[CostBudgetUse]:
    """How *budgets* stand, in their order: one question each. Raises Unavailable."""
    return [_use_of(reader, budget, now) for budget in budgets]


def use_json(use: CostBudgetUse) -> dict[str, Any]:
    """*use* as JSON: amounts are texts, which no reader rounds; times are moments."""
    budget = use.budget
    return {
        "budget": budget.name,
        "tenant": budget.tenant,
        "tool": budget.tool,
        "per": budget.per.value,
        "amount": f"{budget.amount:f}",
        "currency": budget.currency,
        "since": use.since,
        "until": use.until,
        "shares": [
            {
                "tenant": one.tenant_id,
                "tool": one.tool_id,
                "spent": f"{one.spent:f}",
                "left": f"{one.left:f}",
            }
            for one in use.shares
        ],
        "more": use.more,
    }


def _use_of(reader: FactReader, budget: CostBudget, now: datetime) -> CostBudgetUse:
    by = _fields(budget)
    sums = reader.costs(_query(budget, now), by)
    found = [share for one in sums if (share := _share(budget, by, one, now)) is not None]
    if not found and not _is_of_each(budget):
        found = [BudgetShare(budget.tenant, budget.tool, Decimal(0), budget.amount)]
    return CostBudgetUse(
        budget=budget,
        since=budget.since(now),
        until=budget.until(now),
        shares=found[:MOST_SHARES],
        more=len(found) > MOST_SHARES or (len(sums) >= LONGEST_PAGE and _is_of_each(budget)),
    )


def _fields(budget: CostBudget) -> list[FactField]:
    asked = ((FactField.TENANT, budget.tenant), (FactField.TOOL, budget.tool))
    return [field for field, given in asked if given is not None]


def _query(budget: CostBudget, now: datetime) -> FactQuery:
    """The costs that may count, as narrow as a query can be; `CostBudget.scope` has the word."""
    is_pattern = budget.tool is None or not _WILD.isdisjoint(budget.tool)
    return FactQuery(
        type="cost",
        currency=budget.currency,
        since=budget.since(now),
        tenant_id=None if budget.tenant == EACH else budget.tenant,
        tool_id=None if is_pattern else budget.tool,
    )


def _share(
    budget: CostBudget, by: Sequence[FactField], one: CostSum, now: datetime
) -> BudgetShare | None:
    whose = dict(zip(by, one.values, strict=True))
    tool = whose.get(FactField.TOOL)
    scope = budget.scope(whose.get(FactField.TENANT), tool or "", now)
    if scope is None or (budget.tool is not None and tool is None):
        return None
    left = max(exact_sum(budget.amount, -one.amount), Decimal(0))
    return BudgetShare(scope.tenant_id, scope.tool_id, one.amount, left)


def _is_of_each(budget: CostBudget) -> bool:
    return budget.tenant == EACH or not _WILD.isdisjoint(budget.tool or "")
