"""Settings of costs: what tenants and handlers may spend (spec F2)."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from pydantic import BeforeValidator, Field

from angzarr.facts.cost import amount_of
from angzarr.facts.cost_budget import BudgetPeriod, CostBudget
from angzarr.facts.currencies import checked_currency
from angzarr.settings.base import Section, said


def _exact(given: object) -> Decimal:
    # YAML reads 99.9 as a float, and a person means what is written.
    return said(lambda: amount_of(repr(given) if isinstance(given, float) else given))


def _currency(given: object) -> str:
    return said(lambda: checked_currency(given))


class CostBudgetSection(Section):
    """One budget. Where neither tenant nor tool is set, it bounds the costs of all."""

    amount: Annotated[Decimal, BeforeValidator(_exact)] = Field(gt=0)
    currency: Annotated[str, BeforeValidator(_currency)]
    per: BudgetPeriod = BudgetPeriod.MONTH
    #: A tenant, or ``*``: each tenant has a budget of its own.
    tenant: str | None = None
    #: A handler, or a pattern with * and ?: each such handler has a budget of its own.
    tool: str | None = None


class CostSettings(Section):
    """Budgets of costs, by name."""

    budgets: dict[str, CostBudgetSection] = Field(default_factory=dict)

    def named_budgets(self) -> tuple[CostBudget, ...]:
        """The budgets that are set."""
        return tuple(
            CostBudget(name=name, **section.model_dump()) for name, section in self.budgets.items()
        )
