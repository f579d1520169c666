"""Cost budgets: what a tenant or a handler may spend in a day or a month (spec F2). Pure.

A budget bounds what begins, not what runs: an operation that is under way may spend more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from angzarr.errors import CostBudgetSpentError
from angzarr.facts.cost import day_of, month_of

#: In a budget: each tenant, or each handler, has one of its own.
EACH: Final = "*"


class BudgetPeriod(StrEnum):
    """How long a budget lasts, in UTC."""

    DAY = "day"
    MONTH = "month"


class BudgetScope(NamedTuple):
    """Whose costs add up: of one tenant, one handler, both or, where both are None, of all."""

    tenant_id: str | None
    tool_id: str | None
    currency: str
    since: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CostBudget:
    """At most `amount` of `currency` in each `per`, for a `tenant`, a `tool` or both.

    ``*`` gives each its own budget, None adds all together. A `tool` may be a pattern, each of
    whose handlers has its own budget.
    """

    name: str
    amount: Decimal
    currency: str
    per: BudgetPeriod = BudgetPeriod.MONTH
    tenant: str | None = None
    tool: str | None = None

    def scope(self, tenant: str | None, tool: str, now: datetime) -> BudgetScope | None:
        """Whose costs count for a delivery of *tenant* to *tool*; None: it is no matter of this."""
        if self.tenant is not None and (tenant is None or self.tenant not in {EACH, tenant}):
            return None
        if self.tool is not None and not fnmatchcase(tool, self.tool):
            return None
        return BudgetScope(
            tenant_id=None if self.tenant is None else tenant,
            tool_id=None if self.tool is None else tool,
            currency=self.currency,
            since=self.since(now),
        )

    def since(self, now: datetime) -> datetime:
        """When the day or month of *now* began, in UTC."""
        moment = now.astimezone(UTC)
        return day_of(moment) if self.per is BudgetPeriod.DAY else month_of(moment)

    def until(self, now: datetime) -> datetime:
        """When the day or month of *now* ends, and the budget begins anew; in UTC."""
        # From the first of any month, 31 days lead into the next one.
        longest = timedelta(days=1 if self.per is BudgetPeriod.DAY else 31)
        return self.since(self.since(now) + longest)

    def check(self, scope: BudgetScope, spent: Decimal) -> None:
        """Raise CostBudgetSpentError where *spent* in *scope* has reached the amount."""
        if spent < self.amount:
            return
        whose = " and ".join(
            f"{kind} {value}"
            for kind, value in (("tenant", scope.tenant_id), ("handler", scope.tool_id))
            if value is not None
        )
        said = (
            f"{spent:f} of {self.amount:f} {self.currency} since {scope.since:%Y-%m-%d}"
            f"{f' by {whose}' if whose else ''}"
        )
        raise CostBudgetSpentError(self.name, said)


def scopes_of(
    budgets: Sequence[CostBudget], tenant: str | None, tool: str, now: datetime
) -> Iterator[tuple[CostBudget, BudgetScope]]:
    """The budgets that bound a delivery of *tenant* to *tool*, with whose costs count."""
    for budget in budgets:
        if (scope := budget.scope(tenant, tool, now)) is not None:
            yield budget, scope
