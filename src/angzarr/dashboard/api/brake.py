"""The brake over HTTP: how it stands, pull, release (issue: the global brake)."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from fastapi import Depends, Header, Request
from pydantic import Field
from starlette.responses import Response

from angzarr.analysis.ledger.emergency_stop import BrakeState, Scope, brake_json, brake_state_json
from angzarr.analysis.ledger.operator_actions import LONGEST_NOTE
from angzarr.dashboard import braking
from angzarr.dashboard.api.route import CallerHere, DeskHere, acting, answer, problems, seeing
from angzarr.dashboard.api.shapes import Asked, Moment, Shape
from angzarr.dashboard.brake_light import BrakeLight
from angzarr.dashboard.desk import Desk
from angzarr.dashboard.revision import seen, tag_of

see = seeing("brake")
act = acting("brake")
_STALE: Final = problems(
    {400: "If-Match is not an ETag.", 412: "Another person moved it meanwhile."}
)
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


class Pull(Asked):
    """`automatic`: nothing is replayed by itself; `all`: nor what people asked for."""

    scope: Literal["automatic", "all"] = "automatic"
    why: _Why = ""
    #: When it lets go by itself.
    until: Moment | None = None


class Release(Asked):
    """Why replays may go on."""

    why: _Why = ""


def light_of(request: Request) -> BrakeLight:
    """Return what shows the brake on pages."""
    light: BrakeLight = request.app.state.brake_light
    return light


LightHere = Annotated[BrakeLight, Depends(light_of)]


@see.get("/brake", response_model=BrakeDetailShape)
def show_brake(desk: DeskHere) -> Response:
    """Return how the brake stands, and who moved it lately."""
    history = [brake_state_json(one) for one in desk.brake.brake_history(braking.TOLD)]
    state = desk.brake.state()
    told = _told(desk, state) | {"history": history}
    return answer(told, headers={"ETag": tag_of(state.revision)})


@act.post("/brake/pull", response_model=BrakeShape)
def pull_brake(desk: DeskHere, light: LightHere, caller: CallerHere, asked: Pull) -> Response:
    """Stop replays for every analysis worker; one that holds is never weakened."""
    scope = Scope(asked.scope)
    state = braking.pull(desk, light, scope, asked.why, asked.until, by=caller)
    return answer(_told(desk, state), headers={"ETag": tag_of(state.revision)})


@act.post("/brake/release", response_model=BrakeShape, responses=_STALE)
def release_brake(
    desk: DeskHere,
    light: LightHere,
    caller: CallerHere,
    asked: Release,
    if_match: _IfMatch = None,
) -> Response:
    """Let replays go on; with `If-Match` only as long as nobody moved it since."""
    state = braking.release(desk, light, asked.why, by=caller, revision=seen(if_match))
    return answer(_told(desk, state), headers={"ETag": tag_of(state.revision)})


def _told(desk: Desk, state: BrakeState) -> dict[str, Any]:
    return brake_json(state, desk.clock.now())
