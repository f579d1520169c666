"""The brake over HTTP: how it stands, pull and release; pages use the same functions.

`BrakeLight` keeps how it stands for the top of every page, so that no page waits long for it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Annotated, Any, Final, Literal

from fastapi import Depends, Header, Request
from pydantic import Field
from starlette.responses import Response

from angzarr.analysis.ledger.emergency_stop import (
    Brake,
    BrakeMoved,
    BrakeState,
    Scope,
    brake_json,
    brake_state_json,
)
from angzarr.analysis.ledger.operator_actions import LONGEST_NOTE
from angzarr.clock import Clock
from angzarr.dashboard.access import Caller
from angzarr.dashboard.api.route import CallerHere, ServicesHere, acting, answer, problems, seeing
from angzarr.dashboard.api.shapes import Asked, Moment, Shape
from angzarr.dashboard.paging import seen, stale, tag_of
from angzarr.dashboard.problem import Problem
from angzarr.dashboard.services import Services
from angzarr.errors import AngzarrError

#: How old it may be, and how long a ledger that was away is not asked again.
FRESH: Final = timedelta(seconds=2)
AWAY: Final = timedelta(seconds=15)


@dataclass(slots=True)
class BrakeLight:
    """Remembers how the brake stood; one thread at a time asks again."""

    brake: Brake
    clock: Clock
    #: None: nobody has said it yet.
    _known: BrakeState | None = None
    _ask_at: datetime | None = None
    _asking: threading.Lock = field(default_factory=threading.Lock)

    def look(self) -> BrakeState | None:
        """Return how it stands, or how it stood last where the ledger is away; None: unknown."""
        if self._is_fresh() or not self._asking.acquire(blocking=False):
            return self._known
        try:
            self.show(self.brake.state())
        except AngzarrError:  # the page itself says what is wrong, if it needs the ledger
            self._ask_at = self.clock.now() + AWAY
        finally:
            self._asking.release()
        return self._known

    def last(self) -> BrakeState | None:
        """Return how it stood when somebody looked, None: nobody has; asks nobody."""
        return self._known

    def show(self, state: BrakeState) -> None:
        """Take in how it stands now."""
        self._known, self._ask_at = state, self.clock.now() + FRESH

    def _is_fresh(self) -> bool:
        return self._ask_at is not None and self.clock.now() < self._ask_at


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
    """Return what shows the brake on pages."""
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
    """Let replays go on; with `If-Match` only as long as nobody moved it since."""
    state = release(services, light, asked.why, by=caller, revision=seen(if_match))
    return answer(_told(services, state), headers={"ETag": tag_of(state.revision)})


def _told(services: Services, state: BrakeState) -> dict[str, Any]:
    return brake_json(state, services.clock.now())


#: States of the brake that are told, the newest.
TOLD = 50


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
    return _put(light, services.brake.put(scope, by=by.name, why=why, until=until))


def release(
    services: Services, light: BrakeLight, why: str, *, by: Caller, revision: int | None = None
) -> BrakeState:
    """Let replays go on, if the brake stands as it was seen at *revision* (None: however)."""
    try:
        return _put(light, services.brake.put(Scope.NOTHING, by=by.name, why=why, seen=revision))
    except BrakeMoved:
        raise stale("brake") from None


def _put(light: BrakeLight, state: BrakeState) -> BrakeState:
    light.show(state)
    return state
