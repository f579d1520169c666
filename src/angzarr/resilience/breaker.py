"""Breakers: stop calling a dependency that is ill, and find out gently when it is well (spec D5).

    closed ──enough failures──► open ──time is up──► half_open ──successes──► closed
                                 ▲                      │
                                 └──────any failure─────┘        isolated: held open by an operator

Rules are pure: (state, now) in, state out. Who keeps the state is the port's matter.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple, Protocol

from angzarr.errors import ConfigurationError


class Phase(StrEnum):
    """Where a breaker stands."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"
    ISOLATED = "isolated"


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerSettings:
    """When a breaker opens and closes. Raises ConfigurationError for values that cannot work."""

    window: timedelta = timedelta(seconds=60)
    #: Calls within the window below which nothing is judged.
    min_calls: int = 10
    failures_in_a_row: int = 5
    failure_share: float = 0.5
    open_for: timedelta = timedelta(seconds=60)
    #: Calls let through at a time in half-open.
    probes: int = 1
    #: How long a probe is waited for; its worker may have died.
    probe_lease: timedelta = timedelta(seconds=60)
    successes_to_close: int = 2

    def __post_init__(self) -> None:
        zero = timedelta(0)
        whole = (
            self.min_calls, self.failures_in_a_row, self.probes, self.successes_to_close
        )  # fmt: skip
        checks = (
            (self.window > zero and self.probe_lease > zero, "spans must be more than 0 s"),
            (self.open_for > zero, "open_for must be more than 0 s"),
            (min(whole) >= 1, "counts must be 1 or more"),
            (0 < self.failure_share <= 1, "failure_share must be more than 0 and at most 1"),
        )
        wrong = [said for fits, said in checks if not fits]
        if wrong:
            msg = f"breaker settings: {'; '.join(wrong)}"
            raise ConfigurationError(msg)


class Tally(NamedTuple):
    """Calls that ended within one slice of the window."""

    began_at: datetime
    calls: int
    failures: int


class Probe(NamedTuple):
    """A call let through in half-open, owned by the call and not by its process."""

    token: str
    ends_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """All that is known of one breaker. A new one is closed."""

    phase: Phase = Phase.CLOSED
    tallies: tuple[Tally, ...] = ()  # closed: oldest first
    in_a_row: int = 0  # closed: failures since the last success
    retry_at: datetime | None = None  # open
    probes: tuple[Probe, ...] = ()  # half-open
    successes: int = 0  # half-open


@dataclass(frozen=True, slots=True, kw_only=True)
class Barred:
    """The call may not be made; ask again after `retry_after`."""

    retry_after: timedelta

    def spread(self, chance: float) -> timedelta:
        """Return when to ask, up to a tenth later by *chance* (0 to 1): not all at one moment."""
        return self.retry_after * (1 + 0.1 * chance)


class Breakers(Protocol):
    """The breakers of a process or a fleet, by name. A name nobody set up has the defaults.

    No verb raises: a breaker store that is away lets calls through (fail open, decisions 26).
    """

    def admit(self, name: str, token: str, now: datetime, /) -> Barred | None:
        """Ask to make a call; None: make it. Asking again with the same token is harmless."""

    def record(self, name: str, token: str, *, ok: bool, now: datetime) -> None:
        """Say how the admitted call ended; not `ok` means that the dependency is ill.

        Only errors of the categories in `category.ILLNESS` are failures; a refusal is a
        healthy answer.
        """

    def isolate(self, name: str, /) -> None:
        """Hold the breaker open until it is reset."""

    def reset(self, name: str, /) -> None:
        """Close the breaker and forget what it saw."""


#: While probes are out: how soon to ask again at most. They usually end long before their lease.
PROBE_WAIT = timedelta(seconds=1)

#: The window is counted in this many slices, so that a busy breaker stays small.
SLICES = 60


def admit(
    state: State, token: str, now: datetime, settings: BreakerSettings
) -> tuple[State, Barred | None]:
    """Return the state after a call asked to be made, and why it may not, if so."""
    match state.phase:
        case Phase.CLOSED:
            return state, None
        case Phase.ISOLATED:
            return state, Barred(retry_after=settings.open_for)
        case Phase.OPEN if state.retry_at is not None and now < state.retry_at:
            return state, Barred(retry_after=state.retry_at - now)
        case _:
            return _probe(
                replace(state, phase=Phase.HALF_OPEN, retry_at=None), token, now, settings
            )


def record(
    state: State, token: str, now: datetime, settings: BreakerSettings, *, ok: bool
) -> State:
    """Return the state after the call of *token* ended.

    Calls that were let through before the breaker opened, or whose probe lease ran out and was
    given to another, change nothing any more.
    """
    match state.phase:
        case Phase.CLOSED:
            return _counted(state, now, settings, ok=ok)
        case Phase.HALF_OPEN if any(probe.token == token for probe in state.probes):
            return _probed(state, token, now, settings, ok=ok)
        case _:
            return state


def isolated() -> State:
    """Return the state of a breaker that an operator holds open; `State()` resets it."""
    return State(phase=Phase.ISOLATED)


def _probe(
    state: State, token: str, now: datetime, settings: BreakerSettings
) -> tuple[State, Barred | None]:
    out = tuple(probe for probe in state.probes if probe.ends_at > now)
    if any(probe.token == token for probe in out):
        return replace(state, probes=out), None
    if len(out) < settings.probes:
        probe = Probe(token, now + settings.probe_lease)
        return replace(state, probes=(*out, probe)), None
    soonest = min(probe.ends_at for probe in out) - now
    return replace(state, probes=out), Barred(retry_after=min(soonest, PROBE_WAIT))


def _probed(
    state: State, token: str, now: datetime, settings: BreakerSettings, *, ok: bool
) -> State:
    if not ok:
        return _opened(now, settings)
    if state.successes + 1 >= settings.successes_to_close:
        return State()
    left = tuple(probe for probe in state.probes if probe.token != token)
    return replace(state, probes=left, successes=state.successes + 1)


def _counted(state: State, now: datetime, settings: BreakerSettings, *, ok: bool) -> State:
    tallies = _with_call(state.tallies, now, settings, ok=ok)
    in_a_row = 0 if ok else state.in_a_row + 1
    if not ok and _ill(tallies, in_a_row, settings):
        return _opened(now, settings)
    return State(tallies=tallies, in_a_row=in_a_row)


def _ill(tallies: tuple[Tally, ...], in_a_row: int, settings: BreakerSettings) -> bool:
    calls = sum(tally.calls for tally in tallies)
    failures = sum(tally.failures for tally in tallies)
    return calls >= settings.min_calls and (
        in_a_row >= settings.failures_in_a_row or failures >= settings.failure_share * calls
    )


def _with_call(
    tallies: tuple[Tally, ...], now: datetime, settings: BreakerSettings, *, ok: bool
) -> tuple[Tally, ...]:
    """Return the tallies of the window that ends *now*, the call included."""
    if tallies and now < tallies[-1].began_at + settings.window / SLICES:
        # Most calls: the window is trimmed when a slice begins, so it is up to one slice longer.
        began_at, calls, failures = tallies[-1]
        return (*tallies[:-1], Tally(began_at, calls + 1, failures + (not ok)))
    recent = (tally for tally in tallies if tally.began_at > now - settings.window)
    return (*recent, Tally(now, 1, int(not ok)))


def _opened(now: datetime, settings: BreakerSettings) -> State:
    return State(phase=Phase.OPEN, retry_at=now + settings.open_for)
