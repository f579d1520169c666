"""Pages of facts: a list by any filter, the newest first, and one with its runs and resolution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fastapi import Request
from starlette.responses import Response

from angzarr.dashboard.api.fact_requests import FactListQuery
from angzarr.dashboard.api.facts import FactId
from angzarr.dashboard.api.route import ServicesHere
from angzarr.dashboard.fact_services import FactsFound
from angzarr.dashboard.pages.forms import filled
from angzarr.dashboard.pages.route import pages, render
from angzarr.dashboard.paging import next_query
from angzarr.errors import ConfigurationError
from angzarr.facts.fact import Fact
from angzarr.facts.fact_json import ENDED, NO_END, summary_of
from angzarr.facts.query import FactOrder, FactPage
from angzarr.facts.resolution import begins_act

router = pages()
_ON_A_PAGE: Final = 50
_NOTHING: Final[Mapping[str, Fact]] = {}
#: What a person chooses from; the address takes any.
_TYPES: Final = ("error", "lifecycle", "cost")


@router.get("/facts")
def list_facts(request: Request, services: ServicesHere) -> Response:
    """Show facts, the newest first."""
    asked, problem = filled(FactListQuery, request), ""
    try:
        found = services.facts.page(
            asked.wanted(), order=FactOrder(asked.order), limit=_ON_A_PAGE, after=asked.cursor
        )
    except ConfigurationError as error:
        found, problem = FactsFound(FactPage(), _NOTHING), str(error)
    return render(
        request,
        "facts.html",
        asked=asked,
        facts=found.page.facts,
        links=found.links,
        summary_of=summary_of,
        begins_act=begins_act,
        types=_TYPES,
        orders=(FactOrder.NEWEST, FactOrder.OLDEST),
        problem=problem,
        next_page=next_query(request, found.page.next),
    )


@router.get("/facts/{fact_id:path}")
def show_fact(request: Request, services: ServicesHere, fact_id: FactId) -> Response:
    """Show one fact, what it resolved or was resolved by, and all runs of its event."""
    detail = services.facts.detail(fact_id)
    return render(
        request,
        "fact.html",
        fact=detail.fact,
        told=detail.told,
        runs=detail.runs,
        summary=summary_of(detail.fact),
        ended=detail.told["data"][ENDED] if begins_act(detail.fact) else None,
        no_end=NO_END,
    )
