"""Peers: how other events of the same handler, and of the same group, fare now (spec A3)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Protocol

#: How long ago "lately" is.
LATELY: Final = timedelta(minutes=5)
#: How many entries are looked at, those that failed last: enough to tell, and no more however
#: large a group is.
MOST: Final = 200
#: How the ledger names what closed an entry whose replay was answered.
BY_REPLAY: Final = "replay "


@dataclass(frozen=True, slots=True, kw_only=True)
class Fared:
    """Of the `MOST` entries that failed last: how many they are, and what became of them lately."""

    events: int = 0
    #: Those that failed lately, and are not handled since.
    failed: int = 0
    #: Those whose replay was handled lately.
    handled: int = 0

    def __str__(self) -> str:
        events = f"{self.events} or more" if self.events >= MOST else self.events
        return (
            f"{events} events, lately {self.failed} failed and {self.handled} handled in a replay"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PeersSeen:
    """How handlers and groups fare; whoever was not asked after is missing."""

    handlers: Mapping[str, Fared] = field(default_factory=dict)
    groups: Mapping[str, Fared] = field(default_factory=dict)


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
