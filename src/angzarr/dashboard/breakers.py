"""Breakers: their API and their pages, which list, show, isolate and reset them (D5)."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, Literal

from fastapi import Path, Request
from starlette.responses import Response

from angzarr.dashboard.actions import steer_breaker
from angzarr.dashboard.api.route import CallerHere, ServicesHere, acting, answer, problems, seeing
from angzarr.dashboard.api.shapes import Shape
from angzarr.dashboard.pages.route import caller_of, go, operator_of, pages, render
from angzarr.dashboard.services import breaker_of
from angzarr.errors import ConfigurationError
from angzarr.resilience.breaker import counts, state_json, transition_json

see = seeing("breakers")
act = acting("breakers")
#: Transitions that are looked through for those of one breaker.
TOLD: Final = 1000
_NONE: Final = problems(
    {404: "There is no such breaker.", 409: "Breakers are not shared: set flow.store."}
)
Name = Annotated[str, Path(pattern=r"^[^\x00-\x1f/]{1,200}$")]


class BreakerShape(Shape):
    """A breaker as the fleet shares it."""

    name: str
    state: Literal["closed", "open", "half_open", "isolated"]
    changed_at: datetime | None
    reason: str | None
    calls: int
    failures: int
    slow: int
    retry_at: datetime | None


class BreakersShape(Shape):
    """All breakers that are known."""

    breakers: list[BreakerShape]


class BreakerDetailShape(BreakerShape):
    """A breaker and what became of it lately."""

    transitions: list[dict[str, Any]]


@see.get("/breakers", response_model=BreakersShape, responses=_NONE)
def list_breakers(services: ServicesHere) -> Response:
    """List every breaker that is set up, or was used within a week."""
    states = services.breakers().states()
    return answer({"breakers": [state_json(name, state) for name, state in states.items()]})


@see.get("/breakers/{name}", response_model=BreakerDetailShape, responses=_NONE)
def show_breaker(services: ServicesHere, name: Name) -> Response:
    """Return one breaker and what became of it lately."""
    state = breaker_of(services, name)
    changes = [change for change in services.breakers().history(TOLD) if change.name == name]
    told = {"transitions": [transition_json(change) for change in changes]}
    return answer(state_json(name, state) | told)


@act.post("/breakers/{name}/{how}", response_model=BreakerShape, responses=_NONE)
def steer(
    services: ServicesHere, caller: CallerHere, name: Name, how: Literal["isolate", "reset"]
) -> Response:
    """Hold a breaker open until it is reset, or close it and forget what it saw."""
    steer_breaker(services, name, how, by=caller)
    return answer(state_json(name, breaker_of(services, name)))


router = pages()
_SHOWN: Final = 20


@router.get("/breakers")
def breakers_page(request: Request, services: ServicesHere) -> Response:
    """Show every breaker, and what became of them lately."""
    try:
        controls = services.breakers()
    except ConfigurationError as error:
        return render(request, "breakers.html", breakers=[], changes=[], problem=str(error))
    states = controls.states()
    return render(
        request,
        "breakers.html",
        breakers=[(name, state, counts(state)) for name, state in states.items()],
        changes=list(reversed(controls.history(TOLD)))[:_SHOWN],
        problem="",
    )


@router.get("/breakers/{name}/{how}")
def ask(
    request: Request, services: ServicesHere, name: Name, how: Literal["isolate", "reset"]
) -> Response:
    """Ask whether it is meant."""
    operator_of(request)
    state = breaker_of(services, name)
    return render(request, "confirm_breaker.html", name=name, state=state, how=how)


@router.post("/breakers/{name}/{how}")
def steer_from_page(
    request: Request, services: ServicesHere, name: Name, how: Literal["isolate", "reset"]
) -> Response:
    """Hold a breaker open until it is reset, or close it."""
    steer_breaker(services, name, how, by=caller_of(request))
    return go(f"/breakers?done={how}")
