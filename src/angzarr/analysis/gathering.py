"""Gathering: finds out what is known of failures before they are classified (spec A3).

For a batch and not for each letter: one question to the ledger, one to the fleet, and a look at the
breakers once a second at most. Whoever cannot answer leaves the evidence unknown; only the ledger
must be there, since nothing could be decided without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, NamedTuple, TypeAlias

from angzarr.analysis.entry import Entry, Failure
from angzarr.analysis.evidence import BreakerSeen, Evidence, Fit, Health
from angzarr.analysis.peers import LATELY, Peers, PeersSeen
from angzarr.clock import Clock
from angzarr.dead_letters.letter import DeadLetter
from angzarr.errors import Unavailable
from angzarr.resilience import breaker_rules
from angzarr.resilience.breaker import BreakerControls, BreakerSettings, Phase, State

#: How long a look at the breakers holds.
FRESH: Final = timedelta(seconds=1)

#: (handler, release that failed) → whether a newer one runs; None: unknown.
NewerRuns: TypeAlias = Callable[[str, str], bool | None]
#: Looks at the fleet once, for a batch.
Releases: TypeAlias = Callable[[], NewerRuns]
#: Whether an event decodes as its handler declares it now.
Decodes: TypeAlias = Callable[[DeadLetter], Fit]


class BreakersSeen(NamedTuple):
    """What one look at the breakers showed."""

    states: Mapping[str, State]
    at: datetime


@dataclass(slots=True, kw_only=True)
class BreakerLook:
    """The breakers of handlers, as the fleet sees them; one look lasts a second."""

    controls: BreakerControls
    #: Handler → the breakers it names; None: nobody here knows the handler.
    names_of: Callable[[str], Sequence[str] | None]
    settings_of: Callable[[str], BreakerSettings]
    clock: Clock
    #: Handler → the breaker of its domain's poison waves; it counts only while it is not closed.
    wave_of: Callable[[str], str] = lambda _handler: ""
    _seen: BreakersSeen | None = field(default=None, init=False)

    def of(self, handler: str) -> tuple[tuple[BreakerSeen, ...] | None, datetime | None]:
        """Return the breakers of *handler*, and when that was so; None: not known."""
        names, wave = self.names_of(handler), self.wave_of(handler)
        if names is None:
            return None, None
        if not names and not wave:
            return (), None
        if (seen := self._look()) is None:
            return (None if names else ()), None
        if wave in seen.states and seen.states[wave].phase is not Phase.CLOSED:
            names = (*names, wave)
        told = tuple(self._told(name, seen) for name in names if name in seen.states)
        if len(told) < len(names) and all(one.health is not Health.ILL for one in told):
            return None, seen.at  # nobody has called through it lately
        return told, seen.at

    def _look(self) -> BreakersSeen | None:
        now = self.clock.now()
        if self._seen is not None and timedelta(0) <= now - self._seen.at < FRESH:
            return self._seen
        try:
            self._seen = BreakersSeen(self.controls.states(), now)
        except Unavailable:
            self._seen = None
        return self._seen

    def _told(self, name: str, seen: BreakersSeen) -> BreakerSeen:
        state, settings = seen.states[name], self.settings_of(name)
        recent = [one for one in state.tallies if one.began_at > seen.at - settings.window]
        closed = state.phase is Phase.CLOSED
        return BreakerSeen(
            name=name,
            phase=state.phase,
            ramping=closed and breaker_rules.share(state, seen.at, settings) < 1,
            to_be_tried=_to_be_tried(state, seen.at),
            calls=sum(tally.calls for tally in recent),
            failures=sum(tally.failures for tally in recent),
            changed_at=state.changed_at,
            retry_at=state.retry_at,
        )


def _to_be_tried(state: State, now: datetime) -> bool:
    """Tell whether the next call would be a probe.

    An open breaker stays so until somebody calls. Where nothing else does, only a replay will.
    """
    match state.phase:
        case Phase.OPEN:
            return state.retry_at is not None and state.retry_at <= now
        case Phase.HALF_OPEN:
            return all(probe.ends_at <= now for probe in state.probes)
        case _:
            return False


def _nobody_decodes(_letter: DeadLetter) -> Fit:
    return Fit(why="nobody can decode it here")


def _nobody_knows(_handler: str, _release: str) -> bool | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathering:
    """Everybody who can be asked."""

    peers: Peers
    #: Why a failure can be sent nowhere, or an empty string.
    obstacle: Callable[[Failure], str]
    clock: Clock
    #: None: breakers are not shared, so nobody can be asked.
    breakers: BreakerLook | None = None
    releases: Releases = lambda: _nobody_knows
    decodes: Decodes = _nobody_decodes

    def gather(self, undecided: Sequence[tuple[Entry, Failure]]) -> list[Evidence]:
        """Return what is known of each failure, in order; raises LedgerUnavailable."""
        if not undecided:
            return []
        now = self.clock.now()
        peers = self._fared([entry for entry, _ in undecided], now)
        newer = self._newer()
        return [self._evidence(*pair, now, peers, newer) for pair in undecided]

    def _fared(self, entries: Iterable[Entry], now: datetime) -> PeersSeen:
        handlers = {entry.handler_name for entry in entries if entry.handler_name}
        groups = {entry.fingerprint for entry in entries if entry.fingerprint}
        return self.peers.fared(sorted(handlers), sorted(groups), now - LATELY)

    def _newer(self) -> NewerRuns:
        try:
            return self.releases()
        except Unavailable:
            return _nobody_knows

    def _evidence(
        self, entry: Entry, failure: Failure, now: datetime, peers: PeersSeen, newer: NewerRuns
    ) -> Evidence:
        letter = failure if isinstance(failure, DeadLetter) else None
        look = self.breakers.of(letter.handler) if self.breakers and letter else (None, None)
        return Evidence(
            failure=failure,
            now=now,
            believed_at=entry.last_failed_at,
            replays=entry.replays,
            target_problem=self.obstacle(failure),
            breakers=look[0],
            breakers_at=look[1],
            handler_fares=peers.handlers.get(entry.handler_name),
            group_fares=peers.groups.get(entry.fingerprint),
            newer_release=newer(letter.handler, letter.version) if letter else None,
            fit=self.decodes(letter) if letter else Fit(why="the letter cannot be read"),
        )
