"""Breakers in Redis: what breaker.lua takes and wrote, and what this process last heard."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache
from threading import Lock
from typing import Any, Final

from angzarr.adapters.redis.flow_line import moment
from angzarr.resilience import breaker_rules as rules
from angzarr.resilience.breaker import (
    BreakerProbe,
    BreakerSettings,
    BreakerState,
    Counts,
    Permit,
    Phase,
    Tally,
    Transition,
    TransitionReason,
)


@lru_cache(maxsize=1024)
def told_settings(settings: BreakerSettings) -> str:
    """*settings* as the script reads them, spans in milliseconds."""
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
    """The state that the script wrote; an empty list of Lua's is an object."""
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
    """A transition as the script wrote it into the history."""
    after = read_state(said["state"])
    return rules.transition(said["name"], Phase(said["before"]), after, said["by"])


def _maybe(milliseconds: float | None) -> datetime | None:
    return None if milliseconds is None else moment(milliseconds)


#: Seconds after which a name that was not used is forgotten, or after twice as many.
IDLE: Final = 1800.0


class HeardBreakers:
    """Safe to use from many threads. It is asked in memory and knows no store."""

    def __init__(self) -> None:
        #: Permits of those that are closed and not ramping up: nearly all.
        self.permits: dict[str, Permit] = {}
        self._states: dict[str, BreakerState] = {}
        self._heard_at: dict[str, float] = {}
        #: Names that were used since `_swept_at`.
        self._used: set[str] = set()
        self._swept_at = time.monotonic()
        self._lock = Lock()

    def state(self, name: str) -> BreakerState | None:
        """What was last heard of *name*."""
        return self._states.get(name)

    def names(self) -> list[str]:
        """The names of which something was heard."""
        return list(self._states)

    def phases(self) -> Mapping[str, Phase]:
        """Where each of them stands."""
        return {name: state.phase for name, state in self._states.copy().items()}

    def take_in(self, name: str, state: BreakerState, asked_at: float) -> None:
        """Note *state*, an answer to what was asked at *asked_at* (of `time.monotonic`)."""
        with self._lock:
            known = self._states.get(name)
            if known is not None and known.era > state.era and asked_at < self._heard_at[name]:
                return  # an answer that was overtaken by a later one; else the store was emptied
            self._states[name], self._heard_at[name] = state, time.monotonic()
            if state.phase is Phase.CLOSED and state.ramp_from is None:
                self.permits[name] = Permit(name, state.era)
            else:
                self.permits.pop(name, None)

    def end_ramp_up(self, name: str, seen: BreakerState) -> None:
        """Note that a ramp-up is over, unless it was heard meanwhile that all is different."""
        with self._lock:
            if self._states.get(name) is seen:
                self._states[name] = replace(seen, ramp_from=None)
                self.permits[name] = Permit(name, seen.era)

    def use(self, names: Iterable[str]) -> None:
        """Note that *names* are used."""
        self._used.update(names)

    def sweep(self, refuses: Callable[[str, BreakerState], bool]) -> None:
        """Forget what was not used for long, but for what *refuses* calls.

        Names come from data, such as tenants; one that is used again is asked for again.
        """
        if time.monotonic() < self._swept_at + IDLE:
            return
        with self._lock:
            for name in self._states.keys() - self._used:
                if not refuses(name, self._states[name]):
                    del self._states[name], self._heard_at[name]
                    self.permits.pop(name, None)
        self._used.clear()
        self._swept_at = time.monotonic()
