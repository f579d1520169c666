"""The brake as JSON, for programs. The command line's `--json` and the HTTP API say the same."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from angzarr.analysis.ledger.emergency_stop import BrakeState


def state_json(state: BrakeState) -> dict[str, Any]:
    """Return how the brake was put as a JSON object."""
    return {
        "scope": state.scope.value,
        "by": state.by,
        "why": state.why,
        "at": state.at.isoformat() if state.at else None,
        "until": state.until.isoformat() if state.until else None,
    }


def standing_json(state: BrakeState, now: datetime) -> dict[str, Any]:
    """Return how the brake stands at *now*, what it holds then, and who pulled it first."""
    told = None
    if first := state.first:
        at = first.at and first.at.isoformat()
        told = {"by": first.by, "why": first.why, "at": at, "earlier": state.earlier}
    return state_json(state) | {"holds": state.holds(now).value, "first": told}
