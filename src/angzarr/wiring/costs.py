"""Costs: from settings to what writes costs down and asks whether more may be spent."""

from __future__ import annotations

from decimal import Decimal

from angzarr.clock import Clock
from angzarr.delivery.costs import CostBudgets, CostRecorder
from angzarr.facts.cost_budget import BudgetScope
from angzarr.facts.fact import FactLog
from angzarr.facts.query import FactQuery, FactReader
from angzarr.wiring.context import AppContext
from angzarr.wiring.fact_store import open_fact_store


def open_recorder(context: AppContext, facts: FactLog, clock: Clock) -> CostRecorder:
    """What writes the costs of this process to *facts*.

    Raises ConfigurationError where budgets are set and no facts can be asked what was spent.
    """
    budgets = context.settings.costs.named_budgets()
    if not budgets:
        return CostRecorder(facts=facts, clock=clock)
    reader = open_fact_store(context.settings, context.broker_url)
    bounded = CostBudgets(budgets=budgets, spent=lambda scope: spent(reader, scope), clock=clock)
    return CostRecorder(facts=facts, clock=clock, budgets=bounded, close_reader=reader.close)


def spent(reader: FactReader, scope: BudgetScope) -> Decimal:
    """What the facts say was spent in *scope*; raises Unavailable."""
    wanted = FactQuery(
        type="cost",
        tenant_id=scope.tenant_id,
        tool_id=scope.tool_id,
        currency=scope.currency,
        since=scope.since,
    )
    return next((one.amount for one in reader.costs(wanted, ())), Decimal(0))
