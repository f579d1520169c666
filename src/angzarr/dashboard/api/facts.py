"""Facts over HTTP: list, show, count and append (F1). An append is done once for each id."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final
from urllib.parse import quote

from fastapi import Depends, Path, Query, Request
from starlette.responses import Response

from angzarr.dashboard.access import Caller
from angzarr.dashboard.api.fact_requests import FactListQuery, FactStatsQuery, NewFact
from angzarr.dashboard.api.requests import said_once
from angzarr.dashboard.api.route import (
    PREFIX,
    CallerHere,
    ServicesHere,
    acting,
    answer,
    problems,
    seeing,
)
from angzarr.dashboard.api.shapes import Shape
from angzarr.dashboard.paging import next_link, sealed
from angzarr.dashboard.problem import Problem
from angzarr.dashboard.services import Services
from angzarr.facts.fact_json import counts_json, fact_json, fact_page_json
from angzarr.facts.query import FactOrder

see = seeing("facts")
act = acting("facts")
#: The seed's path; it does the same.
seed = acting("facts", prefix="/v1")

FactId = Annotated[str, Path(pattern=r"^[^\x00-\x1f]{1,500}$")]
_SETUP: Final = {409: "No database keeps facts: set facts.url."}
#: One of two readers would keep another fact.
_STRICTLY: Final = [Depends(said_once)]
_NONE: Final = problems({404: "There is no such fact.", **_SETUP})


class FactShape(Shape):
    """A fact. The data of an error fact say `resolved` and `resolution_fact_id`, as of now."""

    id: str
    type: str
    subtype: str
    timestamp: datetime
    tenant_id: str | None
    entity_id: str | None
    tool_id: str | None
    event_id: str | None
    trace_id: str | None
    asset_id: str | None
    config_id: str | None
    config_version: str | None
    resolves: str | None
    amount: str | None
    currency: str | None
    from_entity: str | None
    to_entity: str | None
    data: dict[str, Any]


class FactPageShape(Shape):
    """A page of facts; `next` is the cursor of the next one, or null."""

    facts: list[FactShape]
    next: str | None


class FactDetailShape(FactShape):
    """A fact, the ids of those that it resolved, and the runs of its event by its handler.

    `earlier_runs`: there are runs before those.
    """

    resolved_facts: list[str]
    runs: list[FactShape]
    earlier_runs: bool


class FactStatsShape(Shape):
    """How many facts there are since when, by the fields that were asked for."""

    since: datetime | None
    until: datetime | None
    counts: list[dict[str, Any]]


@see.get("/facts", response_model=FactPageShape, responses=problems({400: "No cursor.", **_SETUP}))
def list_facts(
    request: Request, services: ServicesHere, asked: Annotated[FactListQuery, Query()]
) -> Response:
    """List facts, the newest first."""
    order = FactOrder(asked.order)
    found = services.facts.page(asked.wanted(), order=order, limit=asked.limit, after=asked.cursor)
    told = fact_page_json(found.page, found.links)
    told |= {"next": sealed(found.page.next) or None}
    return answer(told, headers=next_link(request, found.page.next))


@see.get("/facts/stats", response_model=FactStatsShape, responses=problems(_SETUP))
def count_facts(services: ServicesHere, asked: Annotated[FactStatsQuery, Query()]) -> Response:
    """Count facts of the last day, or of the time, event, entity or trace that is asked for."""
    wanted, fields = asked.bounded(services.clock.now()), asked.fields
    counts = counts_json(services.facts.stats(wanted, fields, limit=asked.limit), fields)
    return answer({"since": wanted.since, "until": wanted.until, "counts": counts})


@see.get("/facts/{fact_id:path}", response_model=FactDetailShape, responses=_NONE)
def show_fact(services: ServicesHere, fact_id: FactId) -> Response:
    """Return one fact, what it resolved or was resolved by, and all runs of its event."""
    return answer(services.facts.detail(fact_id).told)


_APPENDED: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "It was there already, with the same body."},
    201: {"description": "It is kept.", "model": FactShape},
    **problems({409: "The id has another body, or no database keeps facts; nothing was changed."}),
}


@act.post("/facts", response_model=FactShape, responses=_APPENDED, dependencies=_STRICTLY)
def append_fact(services: ServicesHere, caller: CallerHere, asked: NewFact) -> Response:
    """Append a fact, once for each id; its data say who did it, as `appended_by`."""
    return _append(services, caller, asked)


@seed.post("/facts", response_model=FactShape, responses=_APPENDED, dependencies=_STRICTLY,
           include_in_schema=False)  # fmt: skip
def append_fact_by_seed(services: ServicesHere, caller: CallerHere, asked: NewFact) -> Response:
    """Do the same at the seed's path."""
    return _append(services, caller, asked)


def _append(services: Services, caller: Caller, asked: NewFact) -> Response:
    fact = asked.fact(services.clock.now(), caller.name)
    kept = services.facts.add(fact)
    if kept is None:
        at = f"{PREFIX}/facts/{quote(fact.id, safe='')}"
        return answer(fact_json(fact), 201, headers={"Location": at})
    if not asked.is_same(kept):
        msg = (
            "a fact of this id says something else, and nothing was changed:"
            " append yours under an id of its own"
        )
        raise Problem(409, "fact-differs", msg)
    found = services.facts.detail(fact.id).told
    return answer({name: found[name] for name in FactShape.model_fields})
