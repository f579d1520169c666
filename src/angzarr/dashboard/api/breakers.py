"""Breakers over HTTP: list, show, isolate, reset (spec D5)."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from fastapi import Path
from starlette.responses import Response

from angzarr.dashboard.actions import steer_breaker
from angzarr.dashboard.api.route import CallerHere, ServicesHere, acting, answer, problems, seeing
from angzarr.dashboard.api.shapes import BreakerDetailShape, BreakerShape, BreakersShape
from angzarr.dashboard.services import breaker_of
from angzarr.resilience.breaker import state_json, transition_json

see = seeing("breakers")
act = acting("breakers")
#: Transitions that are looked through for those of one breaker.
TOLD: Final = 1000
_NONE: Final = problems(
    {404: "There is no such breaker.", 409: "Breakers are not shared: set flow.store."}
)
Name = Annotated[str, Path(pattern=r"^[^\x00-\x1f/]{1,200}$")]


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
