"""Costs: their API and page, which add up what was spent, and on what failed (F2)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Final

from fastapi import Query, Request
from pydantic import Field
from starlette.responses import Response

from angzarr.dashboard.api.fact_requests import FactFilter
from angzarr.dashboard.api.route import ServicesHere, answer, problems, seeing
from angzarr.dashboard.api.shapes import Fingerprint, Shape
from angzarr.dashboard.pages.forms import filled
from angzarr.dashboard.pages.route import pages, render
from angzarr.dashboard.services import group_of
from angzarr.errors import ConfigurationError
from angzarr.facts.cost_budget import BudgetPeriod
from angzarr.facts.cost_budget_use import use_json
from angzarr.facts.cost_report import COST_FIELDS, report_json, sum_json
from angzarr.facts.query import LONGEST_PAGE, FactField, FactQuery

see = seeing("costs")
_SETUP: Final = {409: "No database keeps facts: set facts.url."}
_FIELD: Final = "|".join(one.value for one in COST_FIELDS)
#: Of costs that are asked for without a time.
_SPAN: Final = timedelta(days=30)


class CostQuery(FactFilter):
    """Which costs, by which fields; of the last 30 days unless it says since when."""

    by: Annotated[
        str,
        Field(
            pattern=rf"^(({_FIELD})(,({_FIELD})){{0,6}})?$",
            description=f"Fields with commas between them: {', '.join(COST_FIELDS)}. None: all.",
        ),
    ] = "tenant,tool"
    limit: int = Field(default=100, ge=1, le=LONGEST_PAGE)

    @property
    def fields(self) -> list[FactField]:
        """The fields, each once."""
        return [FactField(one) for one in dict.fromkeys(self.by.split(",")) if one]

    def bounded(self, now: datetime) -> FactQuery:
        """The query."""
        asked = {name: getattr(self, name) for name in FactFilter.model_fields}
        asked |= {"type": "cost", "since": self.since or (self.until or now) - _SPAN}
        return FactQuery(**asked)


class CostShape(Shape):
    """A sum in one currency; `failed` is the part that failed runs spent. Amounts are text."""

    tenant: str | None = None
    tool: str | None = None
    day: str | None = None
    cause: str | None = Field(default=None, description="The error code of the failed runs.")
    operation: str | None = None
    config: str | None = None
    event: str | None = None
    currency: str
    amount: str
    failed: str
    costs: int
    failed_costs: int


class CostsShape(Shape):
    """What was spent since when, the largest sums of each currency first."""

    since: datetime | None
    until: datetime | None
    costs: list[CostShape]


class BudgetShareShape(Shape):
    """What one tenant, one handler, both or, where both are null, all have spent and may spend."""

    tenant: str | None
    tool: str | None
    spent: str
    left: str


class CostBudgetShape(Shape):
    """A budget from `since` until it begins anew, the largest shares first. Amounts are text."""

    budget: str
    tenant: str | None = Field(description="`*`: each tenant has a budget of its own.")
    tool: str | None = Field(description="A handler, or a pattern of handlers with one each.")
    per: BudgetPeriod
    amount: str
    currency: str
    since: datetime
    until: datetime
    shares: list[BudgetShareShape]
    more: bool = Field(description="There are more shares than these.")


class CostBudgetsShape(Shape):
    """The budgets of `costs.budgets`, in that order."""

    budgets: list[CostBudgetShape]


class GroupCostsShape(Shape):
    """What the events of a group have cost; `more`: of so many entries that failed last only."""

    costs: list[CostShape]
    entries: int
    more: bool


@see.get("/costs", response_model=CostsShape, response_model_exclude_unset=True,
         responses=problems(_SETUP))  # fmt: skip
def add_up_costs(services: ServicesHere, asked: Annotated[CostQuery, Query()]) -> Response:
    """Add up the costs of the last 30 days, or of the time that is asked for."""
    wanted, fields = asked.bounded(services.clock.now()), asked.fields
    costs = report_json(fields, services.facts.costs(wanted, fields, limit=asked.limit))
    return answer({"since": wanted.since, "until": wanted.until, "costs": costs})


@see.get("/costs/budgets", response_model=CostBudgetsShape, responses=problems(_SETUP))
def show_budgets(services: ServicesHere) -> Response:
    """Tell what is spent of each budget, what is left, and when it begins anew."""
    return answer({"budgets": [use_json(one) for one in services.facts.budget_uses()]})


@see.get("/groups/{fingerprint}/costs", response_model=GroupCostsShape,
         response_model_exclude_unset=True,
         responses=problems({404: "There is no such group.", **_SETUP}))  # fmt: skip
def add_up_costs_of_group(services: ServicesHere, fingerprint: Fingerprint) -> Response:
    """Add up what the events of a group have cost in its handler, retries and replays included."""
    group = group_of(services, fingerprint)
    found = services.facts.costs_of_group(services.ledger, group.fingerprint)
    costs = [sum_json(one) for one in found.sums]
    return answer({"costs": costs, "entries": found.entries, "more": found.more})


router = pages()
#: What a person chooses from; the address takes any.
_VIEWS: Final = (
    "tenant,tool", "tool", "tenant", "day", "cause", "tool,cause", "operation", "config", "event",
)  # fmt: skip


@router.get("/costs")
def costs_page(request: Request, services: ServicesHere) -> Response:
    """Show what was spent, and how much of it on what failed."""
    asked, problem = filled(CostQuery, request), ""
    wanted, fields = asked.bounded(services.clock.now()), asked.fields
    try:
        sums = services.facts.costs(wanted, fields, limit=asked.limit)
        uses = services.facts.budget_uses()
    except ConfigurationError as error:
        sums, uses, problem = [], [], str(error)
    return render(
        request,
        "costs.html",
        asked=asked,
        since=wanted.since,
        fields=fields,
        sums=sums,
        uses=uses,
        views=_VIEWS,
        problem=problem,
        cut=len(sums) == asked.limit,
    )
