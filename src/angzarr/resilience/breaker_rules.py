"""The rules of a breaker: (state, now) in, state out. Pure; `breaker.lua` says the same to Redis.

Outcomes come in batches, since a process reports many successes at once (spec D5).
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

from angzarr.resilience.breaker import (
    Barred,
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

_ZERO = timedelta(0)

#: While probes are out: how soon to ask again at most. They usually end long before their lease.
PROBE_WAIT = timedelta(seconds=1)

#: Those who wait are back within this, however long the outage was, unless the ramp-up is longer.
LONGEST_SPREAD = timedelta(minutes=15)

#: The window is counted in this many slices, so that a busy breaker stays small.
SLICES = 30

#: How much further ahead a moment may lie than its span: clocks that are told are that uneven.
#: One further ahead was noted before the clock was set back, and would last until it caught up.
UNEVEN = timedelta(seconds=1)

#: The share of the calls that a ramp-up begins with.
FIRST_SHARE = 0.1


class CallBatch(NamedTuple):
    """Calls that ended, in order: how many, and the runs of failures among them."""

    calls: int = 0
    failures: int = 0
    slow: int = 0
    #: Failures before the first success, at most in a row, and since the last success.
    lead: int = 0
    longest: int = 0
    tail: int = 0

    def with_call(self, *, ok: bool, slow: bool = False) -> CallBatch:
        """The batch with one call more at its end."""
        calls, failures, slows, lead, longest, tail = self
        if ok:
            return CallBatch(calls + 1, failures, slows + slow, lead, longest, 0)
        tail += 1
        lead += lead == calls  # nothing but failures so far
        return CallBatch(calls + 1, failures + 1, slows + slow, lead, max(longest, tail), tail)

    def in_a_row(self, before: int) -> int:
        """The failures since the last success, *before* of which came before the batch."""
        return before + self.calls if self.lead == self.calls else self.tail

    def most_in_a_row(self, before: int) -> int:
        """The longest run of failures, *before* of which came before the batch."""
        return max(before + self.lead, self.longest)


def admit(  # noqa: PLR0917 - the port's arguments, and what a rule is told
    state: BreakerState,
    name: str,
    token: str,
    now: datetime,
    settings: BreakerSettings,
    whose: str = "",
) -> tuple[BreakerState, Permit | Barred]:
    """The state after a call asked to be made, and its permit or why there is none."""
    match state.phase:
        case Phase.CLOSED:
            return state, _ramped(state, name, whose or token, now, settings)
        case Phase.ISOLATED:
            return state, Barred(retry_after=settings.open_for, spread=spread(state, now, settings))
        case Phase.OPEN if (left := _left(state.retry_at, now, settings.open_for)) > _ZERO:
            return state, Barred(retry_after=left, spread=spread(state, now, settings))
        case Phase.OPEN:
            half_open = _changed(
                state, Phase.HALF_OPEN, now, TransitionReason.TIMEOUT_ELAPSED, Counts()
            )
            return _probe(half_open, name, token, now, settings)
        case _:
            return _probe(state, name, token, now, settings)


def report(
    state: BreakerState, era: int, batch: CallBatch, now: datetime, settings: BreakerSettings
) -> BreakerState:
    """The state after the calls of *batch*, none of them a probe, ended.

    Calls that were let through in another *era*, so before the breaker opened, change nothing
    any more.
    """
    if state.phase is not Phase.CLOSED or era != state.era or not batch.calls:
        return state
    tallies = _with_batch(state.tallies, batch, now, settings)
    calls = sum(tally.calls for tally in tallies)
    failures = sum(tally.failures for tally in tallies)
    slow = sum(tally.slow for tally in tallies)
    ill = calls >= settings.min_calls and (
        (batch.failures > 0 and batch.most_in_a_row(state.in_a_row) >= settings.failures_in_a_row)
        or failures >= settings.failure_share * calls
        or slow >= settings.slow_share * calls
    )
    if ill:
        judged = Counts(calls, failures, calls - failures)
        return _opened(state, now, settings, TransitionReason.THRESHOLD_EXCEEDED, judged)
    ramp_from = state.ramp_from
    if ramp_from is not None and ramp_from > now + UNEVEN:
        ramp_from = now
    in_a_row = batch.in_a_row(state.in_a_row)
    return replace(state, tallies=tallies, in_a_row=in_a_row, ramp_from=ramp_from)


def probed(
    state: BreakerState, token: str, now: datetime, settings: BreakerSettings, *, ok: bool
) -> BreakerState:
    """The state after the probe of *token* ended.

    One whose lease ran out and was given to another changes nothing any more.
    """
    if state.phase is not Phase.HALF_OPEN or all(probe.token != token for probe in state.probes):
        return state
    if not ok:
        judged = Counts(state.successes + 1, 1, state.successes)
        return _opened(state, now, settings, TransitionReason.HALF_OPEN_FAILED, judged)
    successes = state.successes + 1
    if successes >= settings.successes_to_close:
        judged = Counts(successes, 0, successes)
        return _closed(state, now, settings, TransitionReason.THRESHOLD_MET, judged)
    return replace(forgone(state, token), successes=successes)


def forgone(state: BreakerState, token: str) -> BreakerState:
    """The state without the probe of *token*, which tells nothing."""
    return replace(state, probes=tuple(probe for probe in state.probes if probe.token != token))


def isolated(state: BreakerState, now: datetime) -> BreakerState:
    """The state of a breaker that an operator holds open."""
    if state.phase is Phase.ISOLATED:
        return state
    return _changed(state, Phase.ISOLATED, now, TransitionReason.OPERATOR, Counts())


def reset(state: BreakerState, now: datetime, settings: BreakerSettings) -> BreakerState:
    """The state of a breaker that an operator closed: traffic comes back gradually."""
    if state.phase is Phase.CLOSED:
        return BreakerState(era=state.era, changed_at=state.changed_at, reason=state.reason)
    return _closed(state, now, settings, TransitionReason.OPERATOR, Counts())


def share(state: BreakerState, now: datetime, settings: BreakerSettings) -> float:
    """The share of the calls that a closed breaker lets through: all but in a ramp-up."""
    if state.ramp_from is None or not settings.ramp_up:
        return 1.0
    grown = (now - state.ramp_from) / settings.ramp_up
    return min(1.0, FIRST_SHARE + (1 - FIRST_SHARE) * max(grown, 0.0))


def known(
    state: BreakerState, name: str, now: datetime, settings: BreakerSettings
) -> Permit | Barred | None:
    """The answer to every call now, None if it depends on the call."""
    refused = state.phase is Phase.ISOLATED or (
        state.phase is Phase.OPEN and _left(state.retry_at, now, settings.open_for) > _ZERO
    )
    if refused or (state.phase is Phase.CLOSED and share(state, now, settings) >= 1):
        return admit(state, name, "", now, settings)[1]
    return None


def refuses(state: BreakerState, name: str, now: datetime, settings: BreakerSettings) -> bool:
    """True if no new call is let through now."""
    if state.phase is Phase.CLOSED:
        return False  # in a ramp-up some are
    return isinstance(admit(state, name, "", now, settings)[1], Barred)


def chance_of(whose: str) -> float:
    """The chance (0 to 1) that *whose* stands for; who asks again has the same."""
    digest = hashlib.blake2b(whose.encode("utf-8", "surrogatepass"), digest_size=4).digest()
    return int.from_bytes(digest) / 2**32


def transition(name: str, before: Phase, after: BreakerState, by: str = "") -> Transition | None:
    """The change of phase from *before* to *after*, if there is one."""
    if before is after.phase or after.reason is None or after.changed_at is None:
        return None
    return Transition(
        name=name,
        before=before,
        after=after.phase,
        reason=after.reason,
        counts=after.judged,
        era=after.era,
        at=after.changed_at,
        by=by,
    )


def spread(state: BreakerState, now: datetime, settings: BreakerSettings) -> timedelta:
    """Over how long those who wait are spread: the ramp-up, or half of the outage so far.

    The longer it lasts, the more of them there are, and the less often each of them asks.
    """
    lasted = now - state.ill_since if state.ill_since is not None else _ZERO
    return max(settings.ramp_up, min(lasted / 2, LONGEST_SPREAD))


def _ramped(
    state: BreakerState, name: str, whose: str, now: datetime, settings: BreakerSettings
) -> Permit | Barred:
    if state.ramp_from is None or (chance := chance_of(whose)) < share(state, now, settings):
        return Permit(name, state.era)
    # Its turn within the ramp-up: by then the share has grown as far as its chance.
    turn = settings.ramp_up * ((chance - FIRST_SHARE) / (1 - FIRST_SHARE))
    return Barred(retry_after=turn - max(now - state.ramp_from, _ZERO), ramping=True)


def _left(end: datetime | None, now: datetime, span: timedelta) -> timedelta:
    """How long *now* is from *end*, of a span that began before; 0: it is over."""
    left = _ZERO if end is None else end - now
    return left if _ZERO < left <= span + UNEVEN else _ZERO


def _probe(
    state: BreakerState, name: str, token: str, now: datetime, settings: BreakerSettings
) -> tuple[BreakerState, Permit | Barred]:
    lease = settings.probe_lease
    out = tuple(probe for probe in state.probes if _left(probe.ends_at, now, lease) > _ZERO)
    if any(probe.token == token for probe in out):
        return replace(state, probes=out), Permit(name, state.era, token)
    if len(out) < settings.probes:
        probe = BreakerProbe(token, now + lease)
        return replace(state, probes=(*out, probe)), Permit(name, state.era, token)
    soonest = min(probe.ends_at for probe in out) - now
    wait = min(soonest, PROBE_WAIT)
    barred = Barred(retry_after=wait, spread=spread(state, now, settings))
    return replace(state, probes=out), barred


def _with_batch(
    tallies: tuple[Tally, ...], batch: CallBatch, now: datetime, settings: BreakerSettings
) -> tuple[Tally, ...]:
    """The tallies of the window that ends *now*, the batch included."""
    if tallies and _ZERO <= now - tallies[-1].began_at < settings.window / SLICES:
        # Most calls: the window is trimmed when a slice begins, so it is up to one slice longer.
        began_at, calls, failures, slow = tallies[-1]
        last = Tally(began_at, calls + batch.calls, failures + batch.failures, slow + batch.slow)
        return (*tallies[:-1], last)
    recent = (tally for tally in tallies if now - settings.window < tally.began_at <= now)
    return (*recent, Tally(now, batch.calls, batch.failures, batch.slow))


def _opened(
    state: BreakerState,
    now: datetime,
    settings: BreakerSettings,
    reason: TransitionReason,
    judged: Counts,
) -> BreakerState:
    opened = _changed(state, Phase.OPEN, now, reason, judged)
    return replace(opened, retry_at=now + settings.open_for)


def _closed(
    state: BreakerState,
    now: datetime,
    settings: BreakerSettings,
    reason: TransitionReason,
    judged: Counts,
) -> BreakerState:
    closed = _changed(state, Phase.CLOSED, now, reason, judged)
    return replace(closed, ramp_from=now if settings.ramp_up else None)


def _changed(
    state: BreakerState, phase: Phase, now: datetime, reason: TransitionReason, judged: Counts
) -> BreakerState:
    """A fresh state of *phase*, one era on."""
    return BreakerState(
        phase=phase,
        era=state.era + 1,
        ill_since=None if phase is Phase.CLOSED else state.ill_since or now,
        changed_at=now,
        reason=reason,
        judged=judged,
    )
