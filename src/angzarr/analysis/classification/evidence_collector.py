"""EvidenceCollector: finds out what is known of failures before they are classified (A3).

For a batch and not for each letter: one question to the ledger, one to the fleet, and a look at the
breakers once a second at most. A source without an answer leaves the evidence unknown; only the
ledger must be there, since nothing could be decided without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from typing import Final, NamedTuple, TypeAlias

from angzarr.analysis.classification.evidence import BreakerSeen, DependencyHealth, Evidence, Fit
from angzarr.analysis.ledger.counts import LATELY, CountStep, PeerReport, Peers, counting_in
from angzarr.analysis.ledger.failure import Failure
from angzarr.analysis.ledger.filing_plan import Undecided
from angzarr.clock import Clock
from angzarr.dead_letters.letter import DeadLetter
from angzarr.errors import Unavailable
from angzarr.resilience import breaker_rules
from angzarr.resilience.breaker import BreakerControls, BreakerSettings, BreakerState, Phase

#: How long a look at the breakers holds.
FRESH: Final = timedelta(seconds=1)

#: (handler, release that failed) → whether a newer one runs; None: unknown.
NewerRuns: TypeAlias = Callable[[str, str], bool | None]
#: Looks at the fleet once, for a batch.
Releases: TypeAlias = Callable[[], NewerRuns]
#: Whether an event decodes as its handler declares it now.
Decodes: TypeAlias = Callable[[DeadLetter], Fit]


#: The breakers of a handler, and when that was so; None: not known.
BreakersObserved: TypeAlias = tuple[tuple[BreakerSeen, ...] | None, datetime | None]


class BreakersSeen(NamedTuple):
    """The result of one look at the breakers; None: their store was away."""

    states: Mapping[str, BreakerState] | None
    at: datetime


@dataclass(slots=True, kw_only=True)
class BreakerLook:
    """The breakers of handlers, as the fleet sees them; one look lasts a second."""

    controls: BreakerControls
    #: Handler → the breakers it names; None: the handler is not known here.
    names_of: Callable[[str], Sequence[str] | None]
    settings_of: Callable[[str], BreakerSettings]
    clock: Clock
    #: Handler → the breaker of its domain's poison waves; it counts only while it is not closed.
    wave_of: Callable[[str], str] = lambda _handler: ""
    _seen: BreakersSeen | None = field(default=None, init=False)

    def of(self, handler: str, seen: BreakersSeen | None = None) -> BreakersObserved:
        """The breakers of *handler*, and when that was so; None: not known.

        *seen* is what a look showed, unless one is to be taken.
        """
        names, wave = self.names_of(handler), self.wave_of(handler)
        if names is None:
            return None, None
        if not names and not wave:
            return (), None
        states, at = seen or self.look()
        if states is None:
            return (None if names else ()), None
        if wave in states and states[wave].phase is not Phase.CLOSED:
            names = (*names, wave)
        told = tuple(self._told(name, states[name], at) for name in names if name in states)
        if len(told) < len(names) and all(one.health is not DependencyHealth.ILL for one in told):
            return None, at  # it was not called lately
        return told, at

    def look(self) -> BreakersSeen:
        """The outlook of the last look; one that is older than `FRESH` is taken anew."""
        now = self.clock.now()
        if self._seen is None or not timedelta(0) <= now - self._seen.at < FRESH:
            states = self._states()
            self._seen = BreakersSeen(states, self.clock.now())
        return self._seen

    def _states(self) -> Mapping[str, BreakerState] | None:
        try:
            return self.controls.states()
        except Unavailable:
            return None

    def _told(self, name: str, state: BreakerState, at: datetime) -> BreakerSeen:
        settings = self.settings_of(name)
        recent = [one for one in state.tallies if one.began_at > at - settings.window]
        closed = state.phase is Phase.CLOSED
        return BreakerSeen(
            name=name,
            phase=state.phase,
            ramping=closed and breaker_rules.share(state, at, settings) < 1,
            to_be_tried=_to_be_tried(state, at),
            calls=sum(tally.calls for tally in recent),
            failures=sum(tally.failures for tally in recent),
            changed_at=state.changed_at,
            retry_at=state.retry_at,
        )


def _to_be_tried(state: BreakerState, now: datetime) -> bool:
    """True if the next call would be a probe.

    An open breaker stays so until it is called. Without other callers, only a replay calls it.
    """
    match state.phase:
        case Phase.OPEN:
            return state.retry_at is not None and state.retry_at <= now
        case Phase.HALF_OPEN:
            return all(probe.ends_at <= now for probe in state.probes)
        case _:
            return False


class Outlook(NamedTuple):
    """The result of a look at all sources but the ledger."""

    newer: NewerRuns
    breakers: BreakersSeen | None


def _nobody_decodes(_letter: DeadLetter) -> Fit:
    return Fit(why="no handler here can decode it")


def _undone_by_nothing(_handler: str) -> str:
    return ""


def _nobody_knows(_handler: str, _release: str) -> bool | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceCollector:
    """Everybody who can be asked."""

    peers: Peers
    #: Why a failure can be sent nowhere, or an empty string.
    obstacle: Callable[[Failure], str]
    clock: Clock
    #: None: breakers are not shared, so they cannot be asked.
    breakers: BreakerLook | None = None
    releases: Releases = lambda: _nobody_knows
    decodes: Decodes = _nobody_decodes
    #: Handler → the task that undoes what it does, or an empty string.
    undone_by: Callable[[str], str] = _undone_by_nothing

    def look(self) -> Outlook:
        """Ask all sources but the ledger, for the failures that are gathered next.

        This precedes the ledger's locks: a slow store must not hold up other workers.
        """
        newer: NewerRuns
        try:
            newer = cache(self.releases())
        except Unavailable:
            newer = _nobody_knows
        return Outlook(newer, self.breakers.look() if self.breakers is not None else None)

    def gather(
        self, undecided: Sequence[Undecided], outlook: Outlook | None = None
    ) -> list[Evidence]:
        """The evidence of each failure, in order; raises LedgerUnavailable.

        *outlook* is what `look` returned, unless everybody is to be asked now.
        """
        if not undecided:
            return []
        outlook = outlook or self.look()
        now = self.clock.now()
        peers = self._fared(undecided, now - LATELY)
        sights: dict[str, BreakersObserved] = {}
        return [self._evidence(one, now, peers, outlook, sights) for one in undecided]

    def _fared(self, undecided: Sequence[Undecided], since: datetime) -> PeerReport:
        handlers = {one.entry.handler_name for one in undecided} - {""}
        groups = {one.entry.fingerprint for one in undecided} - {""}
        seen = self.peers.fared(sorted(handlers), sorted(groups), since)
        steps = (
            CountStep(one.stored, one.entry) for one in undecided if one.stored is not one.entry
        )
        return counting_in(seen, steps, since)

    def _evidence(
        self,
        one: Undecided,
        now: datetime,
        peers: PeerReport,
        outlook: Outlook,
        sights: dict[str, BreakersObserved],
    ) -> Evidence:
        entry, failure = one.entry, one.failure
        letter = failure if isinstance(failure, DeadLetter) else None
        sight: BreakersObserved = (None, None)
        if self.breakers and letter:
            if letter.handler not in sights:
                sights[letter.handler] = self.breakers.of(letter.handler, outlook.breakers)
            sight = sights[letter.handler]
        return Evidence(
            failure=failure,
            now=now,
            believed_at=entry.last_failed_at,
            replays=entry.replays,
            target_problem=self.obstacle(failure),
            breakers=sight[0],
            breakers_at=sight[1],
            handler_fares=peers.handlers.get(entry.handler_name),
            group_fares=peers.groups.get(entry.fingerprint),
            newer_release=outlook.newer(letter.handler, letter.version) if letter else None,
            fit=self.decodes(letter) if letter else Fit(why="the letter cannot be read"),
            undone_by=self.undone_by(entry.handler_name),
        )
