"""EventStore: all event books read as one, for whoever follows many aggregates (spec P2, P4).

Only what is in books is there: events that were published without one are not.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from angzarr.aggregates.book import Address
from angzarr.events.event import Event


class Head(NamedTuple):
    """A place in a book: the one that `next_sequence` will fill, or has filled since."""

    address: Address
    next_sequence: int


class Pending(NamedTuple):
    """Events of one type that were counted, and when the oldest of them occurred."""

    type: str
    events: int
    oldest: datetime | None


class EventStore(Protocol):
    """Reads the books. All verbs raise StoreUnavailable. Safe to use from threads."""

    @abstractmethod
    def heads(self, domains: Sequence[str], after: Address | None, limit: int, /) -> Sequence[Head]:
        """Return where the books of *domains* are, in an order of addresses, those behind *after*.

        The order is the store's own, and stays as it is.
        """

    @abstractmethod
    def scan(self, domains: Sequence[str], start: Head | None, limit: int, /) -> Sequence[Event]:
        """Return events of *domains* in the order of `heads`, each book's in sequence.

        They begin with the one at *start*, or the next one that is there; None: with the first.
        """

    @abstractmethod
    def pending(self, places: Sequence[Head], /) -> Sequence[Pending]:
        """Count the events from each of *places* to the end of its book, by type.

        At most a thousand places, of different books.
        """

    @abstractmethod
    def close(self) -> None:
        """Let connections go; safe to call twice."""
