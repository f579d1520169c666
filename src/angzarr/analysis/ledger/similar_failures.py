"""Peers: how other events of the same handler, and of the same group, fare now (spec A3)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Protocol

from angzarr.analysis.ledger.counts import Step
from angzarr.analysis.ledger.entry import BY_REPLAY, Entry, Status

#: How long ago "lately" is.
LATELY: Final = timedelta(minutes=5)
#: How many entries are looked at, those that failed last: enough to tell, and no more however
#: large a group is.
MOST: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Fared:
    """Of the `MOST` entries that failed last: how many they are, and what became of them lately."""

    events: int = 0
    #: Those that failed lately, and are not handled since.
    failed: int = 0
    #: Those whose replay was handled lately.
    handled: int = 0

    def plus(self, other: Fared, times: int = 1) -> Fared:
        """Return the sum, *other* taken *times*, and no more than `MOST` of anything."""
        return Fared(
            events=_bounded(self.events + times * other.events),
            failed=_bounded(self.failed + times * other.failed),
            handled=_bounded(self.handled + times * other.handled),
        )

    def __str__(self) -> str:
        events = f"{self.events} or more" if self.events >= MOST else self.events
        noun = "event" if self.events == 1 else "events"
        return (
            f"{events} {noun}, lately {self.failed} failed and {self.handled} handled in a replay"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PeersSeen:
    """How handlers and groups fare; whoever was not asked after is missing."""

    handlers: Mapping[str, Fared] = field(default_factory=dict)
    groups: Mapping[str, Fared] = field(default_factory=dict)


def fared_alone(entry: Entry, since: datetime) -> Fared:
    """Return how one *entry* fares; lately is *since*."""
    if entry.status is not Status.RESOLVED:
        return Fared(events=1, failed=int(entry.last_failed_at >= since))
    lately = entry.resolved_at is not None and entry.resolved_at >= since
    return Fared(events=1, handled=int(lately and entry.resolved_by.startswith(BY_REPLAY)))


def counting_in(seen: PeersSeen, steps: Iterable[Step], since: datetime) -> PeersSeen:
    """Return what was *seen* in a ledger as it will be after *steps*.

    Exact up to `MOST` entries. Beyond that older ones may count that newer ones would push out.
    """
    handlers, groups = defaultdict(Fared, seen.handlers), defaultdict(Fared, seen.groups)
    for step in steps:
        for entry, times in ((step.before, -1), (step.after, 1)):
            if entry is not None:
                alone = fared_alone(entry, since)
                for found, name in ((handlers, entry.handler_name), (groups, entry.fingerprint)):
                    if name:
                        found[name] = found[name].plus(alone, times)
    return PeersSeen(handlers=handlers, groups=groups)


def _bounded(number: int) -> int:
    return min(max(number, 0), MOST)


class Peers(Protocol):
    """What the ledger can tell of many events at once."""

    def fared(
        self, handlers: Collection[str], groups: Collection[str], since: datetime, /
    ) -> PeersSeen:
        """Return how each of *handlers* and of *groups* (fingerprints) fares; lately is *since*.

        One round trip; raises LedgerUnavailable.
        """

    def close(self) -> None:
        """Let connections go; safe to call twice."""
