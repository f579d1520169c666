"""Braking: pulling and releasing the brake; the API and the pages do it by these."""

from __future__ import annotations

from datetime import datetime

from angzarr.analysis.ledger.emergency_stop import BrakeMoved, BrakeState, Scope
from angzarr.dashboard.access import Caller
from angzarr.dashboard.brake_light import BrakeLight
from angzarr.dashboard.desk import Desk
from angzarr.dashboard.problem import Problem
from angzarr.dashboard.revision import stale

#: States of the brake that are told, the newest.
TOLD = 50


def pull(
    desk: Desk, light: BrakeLight, scope: Scope, why: str, until: datetime | None, *, by: Caller
) -> BrakeState:
    """Pull the brake until somebody releases it, or *until* then; it is never weakened so."""
    if until is not None and until <= desk.clock.now():
        raise Problem(422, "invalid", "until is over: name a moment to come, or none")
    return _put(light, desk.brake.put(scope, by=by.name, why=why, until=until))


def release(
    desk: Desk, light: BrakeLight, why: str, *, by: Caller, revision: int | None = None
) -> BrakeState:
    """Let replays go on, if the brake stands as it was seen at *revision* (None: however)."""
    try:
        return _put(light, desk.brake.put(Scope.NOTHING, by=by.name, why=why, seen=revision))
    except BrakeMoved:
        raise stale("brake") from None


def _put(light: BrakeLight, state: BrakeState) -> BrakeState:
    light.show(state)
    return state
