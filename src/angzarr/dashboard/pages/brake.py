"""Pages of the brake: how it stands, pulling it, and releasing the pull that was seen."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from fastapi import Request
from starlette.responses import Response

from angzarr.analysis.ledger.emergency_stop import BrakeState, Scope
from angzarr.dashboard.api import brake
from angzarr.dashboard.api.brake import LightHere
from angzarr.dashboard.api.route import ServicesHere
from angzarr.dashboard.pages.forms import note_in, number_in
from angzarr.dashboard.pages.route import caller_of, form_of, go, operator_of, pages, render
from angzarr.dashboard.problem import Problem

router = pages()
_CHANGED: Final = 412
_SCOPES: Final = {"automatic": Scope.AUTOMATIC, "all": Scope.ALL}
#: When it may let go by itself.
_ENDS: Final = {
    "": None,
    "15 minutes": timedelta(minutes=15),
    "1 hour": timedelta(hours=1),
    "8 hours": timedelta(hours=8),
    "1 day": timedelta(days=1),
}


@router.get("/brake")
def show_brake(request: Request, services: ServicesHere, light: LightHere) -> Response:
    """Show how the brake stands and who moved it lately."""
    light.show(services.brake.state())
    return render(
        request,
        "brake.html",
        history=tuple(reversed(services.brake.brake_history(brake.TOLD))),
        ends=[one for one in _ENDS if one],
    )


@router.post("/brake/pull")
def pull_brake(request: Request, services: ServicesHere, light: LightHere) -> Response:
    """Pull the brake."""
    form = form_of(request)
    scope, ends = form.get("scope", ""), form.get("ends", "")
    if scope not in _SCOPES or ends not in _ENDS:
        raise Problem(422, "invalid", "the form holds what its page did not offer")
    span = _ENDS[ends]
    until = services.clock.now() + span if span else None
    brake.pull(services, light, _SCOPES[scope], note_in(form), until, by=caller_of(request))
    return go("/brake?done=pull")


@router.get("/brake/release")
def ask_release(request: Request, services: ServicesHere) -> Response:
    """Ask whether replays are to go on."""
    operator_of(request)
    return _question(request, services.brake.state())


@router.post("/brake/release")
def release_brake(request: Request, services: ServicesHere, light: LightHere) -> Response:
    """Release the brake as its page showed it; where somebody moved it since, ask again."""
    form, caller = form_of(request), caller_of(request)
    seen = number_in(form, "revision")
    try:
        brake.release(services, light, note_in(form), by=caller, revision=seen)
    except Problem as problem:
        if problem.status != _CHANGED:
            raise
        return _question(request, services.brake.state(), status=_CHANGED)
    return go("/brake?done=release")


def _question(request: Request, state: BrakeState, *, status: int = 200) -> Response:
    return render(
        request,
        "confirm_release.html",
        status=status,
        state=state,
        is_changed=status == _CHANGED,
    )
