"""How a breaker lies in Redis: what breaker.lua is told, and what it wrote."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from angzarr.adapters.redis.flow_line import moment
from angzarr.resilience import breaker_rules as rules
from angzarr.resilience.breaker import (
    BreakerProbe,
    BreakerSettings,
    BreakerState,
    Counts,
    Phase,
    Tally,
    Transition,
    TransitionReason,
)


@lru_cache(maxsize=1024)
def told_settings(settings: BreakerSettings) -> str:
    """Return *settings* as the script reads them, spans in milliseconds."""
    ms = timedelta(milliseconds=1)
    return json.dumps(
        {
            "window": settings.window // ms,
            "min_calls": settings.min_calls,
            "failures_in_a_row": settings.failures_in_a_row,
            "failure_share": settings.failure_share,
            "slow_share": settings.slow_share,
            "open_for": settings.open_for // ms,
            "probes": settings.probes,
            "probe_lease": settings.probe_lease // ms,
            "successes_to_close": settings.successes_to_close,
            "ramp_up": settings.ramp_up // ms,
        }
    )


def read_state(told: str) -> BreakerState:
    """Return the state that the script wrote; an empty list of Lua's is an object."""
    given: dict[str, Any] = json.loads(told)
    return BreakerState(
        phase=Phase(given["phase"]),
        era=given["era"],
        tallies=tuple(Tally(moment(at), *counts) for at, *counts in given["tallies"] or ()),
        in_a_row=given["in_a_row"],
        ramp_from=_maybe(given.get("ramp_from")),
        retry_at=_maybe(given.get("retry_at")),
        probes=tuple(BreakerProbe(token, moment(ends)) for token, ends in given["probes"] or ()),
        successes=given["successes"],
        ill_since=_maybe(given.get("ill_since")),
        changed_at=_maybe(given.get("changed_at")),
        reason=TransitionReason(given["reason"]) if given.get("reason") else None,
        judged=Counts(*given.get("judged") or ()),
    )


def read_transition(said: Mapping[str, str]) -> Transition | None:
    """Return a transition as the script wrote it into the history."""
    after = read_state(said["state"])
    return rules.transition(said["name"], Phase(said["before"]), after, said["by"])


def _maybe(milliseconds: float | None) -> datetime | None:
    return None if milliseconds is None else moment(milliseconds)
