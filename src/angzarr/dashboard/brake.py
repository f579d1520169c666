"""The brake: its API and its pages, which show how it stands, pull it and release it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any, Final, Literal

from fastapi import Depends, Header, Request
from pydantic import Field
from starlette.responses import Response

from angzarr.analysis.ledger.emergency_stop import (
    BrakeMoved,
    BrakeState,
    Scope,
    brake_json,
    brake_state_json,
)
from angzarr.analysis.ledger.operator_actions import LONGEST_NOTE
from angzarr.dashboard.access import Caller
from angzarr.dashboard.api.route import CallerHere, ServicesHere, acting, answer, problems, seeing
from angzarr.dashboard.api.shapes import Asked, Moment, Shape
from angzarr.dashboard.pages.forms import note_in, number_in
from angzarr.dashboard.pages.route import caller_of, form_of, go, operator_of, pages, render
from angzarr.dashboard.paging import seen, stale, tag_of
from angzarr.dashboard.problem import Problem
from angzarr.dashboard.services import BrakeLight, Services

see = seeing("brake")
act = acting("brake")
_STALE: Final = problems(
    {400: "If-Match is not an ETag.", 412: "Another person moved it meanwhile."}
)
#: States of the brake that are told, the newest.
TOLD: Final = 50
_IfMatch = Annotated[str | None, Header(description='The ETag of what you saw, like "1".')]
_Why = Annotated[str, Field(max_length=LONGEST_NOTE)]


class BrakePut(Shape):
    """How somebody put the brake."""

    scope: Scope
    by: str
    why: str
    at: Moment | None
    until: Moment | None


class PullShape(Shape):
    """Who pulled the brake, why and when; `earlier`: others did before, too far back to tell."""

    by: str
    why: str
    at: Moment | None
    earlier: bool


class BrakeShape(BrakePut):
    """How the brake stands; `holds` is what it holds now.

    `first` is who began what holds, where that is an earlier pull than the one told.
    """

    holds: Scope
    first: PullShape | None


class BrakeDetailShape(BrakeShape):
    """How the brake stands, and how it stood, oldest first."""

    history: list[BrakePut]


class PullRequest(Asked):
    """`automatic`: nothing is replayed by itself; `all`: nor what people asked for."""

    scope: Literal["automatic", "all"] = "automatic"
    why: _Why = ""
    #: When it lets go by itself.
    until: Moment | None = None


class ReleaseRequest(Asked):
    """Why replays may go on."""

    why: _Why = ""


def light_of(request: Request) -> BrakeLight:
    """The light that shows the brake on pages."""
    light: BrakeLight = request.app.state.brake_light
    return light


LightHere = Annotated[BrakeLight, Depends(light_of)]


@see.get("/brake", response_model=BrakeDetailShape)
def show_brake(services: ServicesHere) -> Response:
    """Return how the brake stands, and who moved it lately."""
    history = [brake_state_json(one) for one in services.brake.brake_history(TOLD)]
    state = services.brake.state()
    told = _told(services, state) | {"history": history}
    return answer(told, headers={"ETag": tag_of(state.revision)})


@act.post("/brake/pull", response_model=BrakeShape)
def pull_brake(
    services: ServicesHere, light: LightHere, caller: CallerHere, asked: PullRequest
) -> Response:
    """Stop replays for every analysis worker; one that holds is never weakened."""
    scope = Scope(asked.scope)
    state = pull(services, light, scope, asked.why, asked.until, by=caller)
    return answer(_told(services, state), headers={"ETag": tag_of(state.revision)})


@act.post("/brake/release", response_model=BrakeShape, responses=_STALE)
def release_brake(
    services: ServicesHere,
    light: LightHere,
    caller: CallerHere,
    asked: ReleaseRequest,
    if_match: _IfMatch = None,
) -> Response:
    """Let replays go on; with `If-Match` only if it was not moved since."""
    state = release(services, light, asked.why, by=caller, revision=seen(if_match))
    return answer(_told(services, state), headers={"ETag": tag_of(state.revision)})


def _told(services: Services, state: BrakeState) -> dict[str, Any]:
    return brake_json(state, services.clock.now())


def pull(
    services: Services,
    light: BrakeLight,
    scope: Scope,
    why: str,
    until: datetime | None,
    *,
    by: Caller,
) -> BrakeState:
    """Pull the brake until somebody releases it, or *until* then; it is never weakened so."""
    if until is not None and until <= services.clock.now():
        raise Problem(422, "invalid", "until is over: name a moment to come, or none")
    state = services.brake.put(scope, by=by.name, why=why, until=until)
    light.show(state)
    return state


def release(
    services: Services, light: BrakeLight, why: str, *, by: Caller, revision: int | None = None
) -> BrakeState:
    """Let replays go on, if the brake stands as it was seen at *revision* (None: however)."""
    try:
        state = services.brake.put(Scope.NOTHING, by=by.name, why=why, seen=revision)
    except BrakeMoved:
        raise stale("brake") from None
    light.show(state)
    return state


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
def brake_page(request: Request, services: ServicesHere, light: LightHere) -> Response:
    """Show how the brake stands and who moved it lately."""
    light.show(services.brake.state())
    return render(
        request,
        "brake.html",
        history=tuple(reversed(services.brake.brake_history(TOLD))),
        ends=[one for one in _ENDS if one],
    )


@router.post("/brake/pull")
def pull_from_page(request: Request, services: ServicesHere, light: LightHere) -> Response:
    """Pull the brake."""
    form = form_of(request)
    scope, ends = form.get("scope", ""), form.get("ends", "")
    if scope not in _SCOPES or ends not in _ENDS:
        raise Problem(422, "invalid", "the form holds what its page did not offer")
    span = _ENDS[ends]
    until = services.clock.now() + span if span else None
    pull(services, light, _SCOPES[scope], note_in(form), until, by=caller_of(request))
    return go("/brake?done=pull")


@router.get("/brake/release")
def ask_release(request: Request, services: ServicesHere) -> Response:
    """Ask whether replays are to go on."""
    operator_of(request)
    return _question(request, services.brake.state())


@router.post("/brake/release")
def release_from_page(request: Request, services: ServicesHere, light: LightHere) -> Response:
    """Release the brake as its page showed it; where somebody moved it since, ask again."""
    form, caller = form_of(request), caller_of(request)
    revision = number_in(form, "revision")
    try:
        release(services, light, note_in(form), by=caller, revision=revision)
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
