"""Pages of breakers: how they stand, and holding one open or closing it."""

from __future__ import annotations

from typing import Final, Literal

from fastapi import Request
from starlette.responses import Response

from angzarr.dashboard.actions import steer_breaker
from angzarr.dashboard.api.breakers import TOLD, Name
from angzarr.dashboard.api.route import ServicesHere
from angzarr.dashboard.pages.route import caller_of, go, operator_of, pages, render
from angzarr.dashboard.services import breaker_of
from angzarr.errors import ConfigurationError
from angzarr.resilience.breaker import counts

router = pages()
_SHOWN: Final = 20


@router.get("/breakers")
def list_breakers(request: Request, services: ServicesHere) -> Response:
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
def steer(
    request: Request, services: ServicesHere, name: Name, how: Literal["isolate", "reset"]
) -> Response:
    """Hold a breaker open until it is reset, or close it."""
    steer_breaker(services, name, how, by=caller_of(request))
    return go(f"/breakers?done={how}")
