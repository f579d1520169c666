"""Breakers: stop calling a dependency that is ill, and find out gently when it is well (spec D5).

    closed ──enough failures, or slow calls──► open ──time is up──► half_open ──successes──┐
      ▲                                         ▲                       │                  │
      │                                         └──────any failure──────┘                  │
      └──────────────ramp-up: a growing share of the calls is let through──────────────────┘
                                                         isolated: held open by an operator

The nouns, the port, and breakers as JSON; `breaker_rules` says how they change.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, TypeVar

from angzarr.errors import CircuitOpenError
from angzarr.resilience.backoff import check_fields

T = TypeVar("T")


_ZERO = timedelta(0)


class Phase(StrEnum):
    """Where a breaker stands."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"
    ISOLATED = "isolated"


class TransitionReason(StrEnum):
    """Why a breaker changed its phase, as its fact says it."""

    THRESHOLD_EXCEEDED = "threshold_exceeded"  # too many failures or slow calls
    TIMEOUT_ELAPSED = "timeout_elapsed"  # it was open long enough to be tried
    HALF_OPEN_FAILED = "half_open_failed"
    THRESHOLD_MET = "threshold_met"  # enough probes went well
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerSettings:
    """When a breaker opens and closes. Raises ConfigurationError for values that cannot work."""

    window: timedelta = timedelta(seconds=60)
    #: Calls within the window below which nothing is judged.
    min_calls: int = 10
    failures_in_a_row: int = 5
    failure_share: float = 0.5
    #: How long a call takes at least that counts as slow; None: no call does.
    slow_call: timedelta | None = None
    slow_share: float = 0.5
    open_for: timedelta = timedelta(seconds=60)
    #: Calls let through at a time in half-open, by the whole fleet.
    probes: int = 1
    #: How long a probe is waited for; its worker may have died.
    probe_lease: timedelta = timedelta(seconds=60)
    successes_to_close: int = 2
    #: How long it takes from the first tenth of the calls to all of them; 0: all at once.
    ramp_up: timedelta = timedelta(seconds=30)

    def __post_init__(self) -> None:
        whole = (
            self.min_calls, self.failures_in_a_row, self.probes, self.successes_to_close
        )  # fmt: skip
        check_fields(
            "breaker settings",
            (self.window > _ZERO and self.probe_lease > _ZERO, "spans must be more than 0 s"),
            (self.open_for > _ZERO, "open_for must be more than 0 s"),
            (self.ramp_up >= _ZERO, "ramp_up must be 0 s or more"),
            (self.slow_call is None or self.slow_call > _ZERO, "slow_call must be more than 0 s"),
            (min(whole) >= 1, "counts must be 1 or more"),
            (0 < self.failure_share <= 1, "failure_share must be more than 0 and at most 1"),
            (0 < self.slow_share <= 1, "slow_share must be more than 0 and at most 1"),
        )

    def is_slow(self, took: timedelta) -> bool:
        """True if a call that *took* so long counts as slow."""
        return self.slow_call is not None and took >= self.slow_call


class Tally(NamedTuple):
    """Calls that ended within one slice of the window."""

    began_at: datetime
    calls: int
    failures: int
    slow: int = 0


class BreakerProbe(NamedTuple):
    """A call let through in half-open, owned by the call and not by its process."""

    token: str
    ends_at: datetime


class Counts(NamedTuple):
    """What a change of phase was judged by."""

    requests: int = 0
    failures: int = 0
    successes: int = 0


NOTHING = Counts()


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerState:
    """All that is known of one breaker. A new one is closed."""

    phase: Phase = Phase.CLOSED
    #: Goes up with each change of phase: a call that was let through in another era says nothing.
    era: int = 0
    tallies: tuple[Tally, ...] = ()  # closed: oldest first
    in_a_row: int = 0  # closed: failures since the last success
    ramp_from: datetime | None = None  # closed: since when traffic is let in gradually
    retry_at: datetime | None = None  # open
    probes: tuple[BreakerProbe, ...] = ()  # half-open
    successes: int = 0  # half-open
    ill_since: datetime | None = None  # not closed: since it was closed last
    changed_at: datetime | None = None
    reason: TransitionReason | None = None  # of the last change
    judged: Counts = NOTHING  # by which it was made


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """A change of phase; only the process that caused it reports it."""

    name: str
    before: Phase
    after: Phase
    reason: TransitionReason
    counts: Counts
    era: int
    at: datetime
    #: The person who did it, if it was one.
    by: str = ""


class BreakerRefusal(NamedTuple):
    """The refusal of calls, of which this was one."""

    name: str
    phase: Phase
    retry_after: timedelta
    at: datetime


class Permit(NamedTuple):
    """A permission to make one call. One that is not a probe is shared by all calls of its era."""

    name: str
    era: int
    #: The token of the probe that this call is, or nothing.
    probe: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Barred:
    """The call may not be made; ask again after `retry_after`."""

    retry_after: timedelta
    #: Over how long those who wait should be spread behind it, so that none stampede.
    spread: timedelta = _ZERO
    #: The breaker is closed and lets a growing share of the calls through: the dependency is well.
    ramping: bool = False

    def wait(self, chance: float) -> timedelta:
        """When to ask, by *chance* (0 to 1) later; a tenth at least is spread.

        They come as a ramp-up lets them in, few at first and then more: by the root of a chance
        that is spread evenly. A call that keeps its chance comes just when it is let through; a
        tenth of the spread is for what it takes to close.
        """
        return self.retry_after + max(self.spread * 1.1, self.retry_after * 0.1) * math.sqrt(chance)

    def error(self, name: str) -> CircuitOpenError:
        """What says so to the code around a call."""
        return CircuitOpenError(name, self.retry_after, self.spread, self.ramping)


class Breakers(Protocol):
    """The breakers of a process or a fleet, by name. A name without settings has the defaults.

    No verb raises: a flow store that is away lets calls through (fail open).
    """

    def known(self, name: str, /) -> Permit | Barred | None:
        """The certain answer at this moment, without asking; None: `admit` must be asked."""

    def refuses(self, name: str, /) -> bool:
        """True if no new call would be let through, as far as is known, without asking.

        In half-open that is while as many probes are out as there may be.
        """

    def admit(self, name: str, token: str, whose: str = "", /) -> Permit | Barred:
        """Ask to make a call; asking again with the same token is harmless.

        In a ramp-up *whose* call it is decides by its `chance_of`: one who asks again under another
        token keeps his turn. By default the token does.
        """

    def record(self, permit: Permit, /, *, ok: bool, took: timedelta) -> None:
        """Say how the call of *permit* ended; not `ok` means that the dependency is ill.

        Only errors of the categories in `category.ILLNESS` are failures; a refusal is a
        healthy answer.
        """

    def forgo(self, permit: Permit, /) -> None:
        """Say that the call was not made, or tells nothing; a probe is free for another call."""

    def phases(self) -> Mapping[str, Phase]:
        """What this process last heard of each breaker that it uses, without asking."""


class BreakerControls(Protocol):
    """What people see of breakers and do to them; raises StoreUnavailable."""

    def isolate(self, name: str, /, *, by: str) -> None:
        """Hold the breaker open until it is reset; *by* whom, for the history."""

    def reset(self, name: str, /, *, by: str) -> None:
        """Close the breaker and forget what it saw; traffic is let in gradually."""

    def states(self) -> Mapping[str, BreakerState]:
        """Every breaker that is known, by name."""

    def history(self, limit: int) -> Sequence[Transition]:
        """The last *limit* transitions of all breakers, oldest first."""


class BreakerWatch(Protocol):
    """Hears what breakers do; it must not raise, and not take long."""

    def changed(self, transition: Transition, /) -> None:
        """See a transition that this process caused."""

    def refused(self, refusal: BreakerRefusal, /) -> None:
        """See that calls are refused: at most one a breaker and minute."""


class Watches(tuple[BreakerWatch, ...]):
    """Several as one, or none."""

    __slots__ = ()

    def changed(self, transition: Transition, /) -> None:
        """Tell each watch of a transition."""
        for watch in self:
            watch.changed(transition)

    def refused(self, refusal: BreakerRefusal, /) -> None:
        """Tell each watch of a refusal."""
        for watch in self:
            watch.refused(refusal)


def state_json(name: str, state: BreakerState) -> dict[str, Any]:
    """A breaker as a JSON object."""
    calls, failures, slow = counts(state)
    return {
        "name": name,
        "state": state.phase.value,
        "changed_at": state.changed_at and state.changed_at.isoformat(),
        "reason": state.reason and state.reason.value,
        "calls": calls,
        "failures": failures,
        "slow": slow,
        "failures_in_a_row": state.in_a_row,
        "retry_at": state.retry_at and state.retry_at.isoformat(),
        "probes": len(state.probes),
        "probe_successes": state.successes,
        "ramp_from": state.ramp_from and state.ramp_from.isoformat(),
    }


def transition_json(change: Transition) -> dict[str, Any]:
    """A change as a JSON object."""
    return {
        "at": change.at.isoformat(),
        "previous_state": change.before.value,
        "new_state": change.after.value,
        "reason": change.reason.value,
        "request_count": change.counts.requests,
        "failure_count": change.counts.failures,
        "success_count": change.counts.successes,
        "by": change.by or None,
    }


def counts(state: BreakerState) -> tuple[int, int, int]:
    """Calls, failures and slow calls within the window."""
    return (
        sum(tally.calls for tally in state.tallies),
        sum(tally.failures for tally in state.tallies),
        sum(tally.slow for tally in state.tallies),
    )


def base_of(name: str) -> str:
    """*name* without its key: by this it is set up."""
    return name.partition(":")[0]


def settings_of(name: str, given: Mapping[str, T], default: T) -> T:
    """The settings *given* for *name*, else for its name without its key, else *default*."""
    return given.get(name) or given.get(base_of(name)) or default
