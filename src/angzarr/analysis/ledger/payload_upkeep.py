"""Upkeep of payload stores: ends holds of letters that are gone, deletes what is free (F4).

A letter's body is released once its entry was removed, and never before. What dies in between
leaves a row, and the next round reads it. Rounds may overlap, and one may be late: a hold that is
to end is never that of a letter in the ledger, since a letter that is filed again has a new one.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple, Protocol

from angzarr.maintenance.retention import BATCH, Removed
from angzarr.payloads.collector import PayloadCollector, PayloadCount, PayloadState
from angzarr.payloads.holders import PayloadHold, PayloadHolders


class ReleasedHold(NamedTuple):
    """A hold that is to end, and the number of its row; *next* begins before."""

    number: int
    hold: PayloadHold
    next: PayloadHold | None = None


class ReleasedPayloads(Protocol):
    """Holds of letters that the ledger has no more; every verb raises LedgerUnavailable."""

    @abstractmethod
    def read(self, limit: int, /) -> list[ReleasedHold]:
        """The oldest *limit*; they stay."""

    @abstractmethod
    def forget(self, numbers: Sequence[int], /) -> None:
        """Forget those, once they have ended; numbers that are unknown count as forgotten."""

    @abstractmethod
    def close(self) -> None:
        """Close connections."""


@dataclass(slots=True)
class LettersBodies:
    """Ends, in *holders*, the holds of letters that *released* names."""

    released: ReleasedPayloads
    holders: PayloadHolders
    batch: int = BATCH
    name: str = field(default="bodies of removed letters", init=False)
    what: str = field(default="holds of letters that are gone", init=False)

    def remove(self, now: datetime) -> Removed:  # noqa: ARG002 - their letters have been kept
        """End a batch of holds."""
        found = self.released.read(self.batch)
        if begun := [one.next for one in found if one.next is not None]:
            self.holders.join(begun)
        if found:
            self.holders.release([one.hold for one in found])
            self.released.forget([one.number for one in found])
        return Removed(len(found), len(found) == self.batch)


class PayloadsWatch(Protocol):
    """Who is told of bodies that were deleted, and of those that are there."""

    def deleted(self, count: PayloadCount, /) -> None:
        """Hear how many bodies a batch deleted, and their bytes."""

    def seen(self, counts: Mapping[PayloadState, PayloadCount], /) -> None:
        """Hear how many bodies are in each state, at the end of a round."""


@dataclass(slots=True)
class UnneededBodies:
    """Deletes bodies that nothing needs, by *collector*; *watch* hears of it."""

    collector: PayloadCollector
    watch: PayloadsWatch | None = None
    batch: int = BATCH
    name: str = field(default="unneeded bodies", init=False)
    what: str = field(default="bodies that nothing needs", init=False)

    def remove(self, now: datetime) -> Removed:  # noqa: ARG002 - the register has its own clock
        """Delete a batch."""
        before = self.collector.account.bytes
        gone = self.collector.collect(self.batch)
        if self.watch is not None:
            self.watch.deleted(PayloadCount(gone, self.collector.account.bytes - before))
        if gone < self.batch:
            self.collector.start_over()
            if self.watch is not None:
                self.watch.seen(self.collector.register.count())
        return Removed(gone, gone == self.batch)
