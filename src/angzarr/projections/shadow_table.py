"""ShadowTable: a read model that is rebuilt beside the live one; a port (spec P4).

It holds the tables and how far they have come, both written in one transaction: a rebuild that is
killed at any moment goes on exactly there.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol, TypeAlias

from angzarr.aggregates.book import Address, Head
from angzarr.errors import RebuildError
from angzarr.events.event import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The plan of a rebuild. A space that was begun for another plan is not gone on with."""

    projection: str
    #: The task name by which its lanes go.
    handler: str
    domains: tuple[str, ...]
    #: The sequence with which aggregates begin.
    first: int = 0
    #: The read model, those that others refer to first.
    tables: tuple[str, ...] = ()


class Failure(NamedTuple):
    """An event that its projection could not handle; its aggregate stays at it."""

    address: Address
    sequence: int
    event_id: str
    event_type: str
    error: str


class Progress(NamedTuple):
    """How far a space has come."""

    started_at: datetime
    #: Whether an earlier run began it.
    resumed: bool
    #: Where the scan of the event store goes on; None: at its beginning.
    cursor: Head | None
    #: Events that are in it.
    events: int
    failures: tuple[Failure, ...] = ()
    #: Whether it was begun for a comparison, of what the code was then.
    verifies: bool = False
    #: Whether its effects may be there twice: see `ShadowTable.spoil`.
    spoiled: bool = False


class Applied(NamedTuple):
    """The events are in the space, but those that were there already."""

    events: int


class Broken(NamedTuple):
    """Nothing was written: the event *at* this place raised *error*."""

    at: int
    error: Exception


class Behind(NamedTuple):
    """An aggregate whose events from `place` up to the one before `until` are not in the space."""

    address: Address
    place: int
    until: int


class Busy(NamedTuple):
    """Nothing was done: others kept a lock for too long. It may be tried again."""

    why: str


class SwitchedOver(NamedTuple):
    """The live read model is the rebuilt one, and the space is gone."""

    events: int
    failures: tuple[Failure, ...] = ()


class Abandoned(NamedTuple):
    """The space is gone."""

    #: Whether the live read model is as it was: a rebuild in place has emptied it.
    whole: bool


class Ahead(NamedTuple):
    """The live read model lacks events that are in the space: they cannot be compared yet."""

    events: int
    #: Aggregates, some of them at most, in which a dead letter holds them up: waiting helps none.
    blocked: tuple[Head, ...] = ()


class Compared(NamedTuple):
    """The live read model and the rebuilt one, at the same events."""

    #: The tables that differ, with how many rows they have: live, and rebuilt.
    differing: Mapping[str, tuple[int, int]]
    rows: int
    #: Aggregates that the rebuilt one lacks from an event on, and events of the live one that are
    #: in no book: both make a difference that says nothing against the live one.
    failures: tuple[Failure, ...] = ()
    unknown: int = 0
    #: Columns that the database numbers and in which alone tables differ.
    renumbered: tuple[str, ...] = ()


#: Brings aggregates up by `apply`, in the transaction that asks for it.
Fill: TypeAlias = Callable[[Sequence[Behind]], None]


class TransactionEnded(RebuildError):
    """A projection committed or rolled back the transaction that it was given."""


class ShadowTable(Protocol):
    """A space for one plan, used by one thread. All verbs raise StoreUnavailable."""

    @abstractmethod
    def begin(self, *, verifies: bool = False) -> Progress:
        """Make the space, or take it up where an earlier run left it.

        *verifies*: one that is made is for a comparison.

        Raises RebuildError if another run has it in hand, if it was begun for another plan, or
        if its plan cannot be carried out there. One for a comparison, or that is spoiled, may be
        of another plan: it is not to be gone on with.
        """

    @abstractmethod
    def clear(self, books: Iterable[Sequence[Head]], /, *, force: bool) -> None:
        """See that no effect is lost; in place, empty the live read model unless that was done.

        *books* are all there are. Raises RebuildError, with all as it was, where the live lanes
        are past events that no book has; with *force* their effects are given up.
        """

    @abstractmethod
    def apply(self, events: Sequence[Event], cursor: Head | None, /) -> Applied | Broken:
        """Handle *events* in order and note where the scan is, all or nothing; safe to repeat.

        Those that are in the space already are left out. With None the scan is where it was.
        Raises TransactionEnded where the projection ended the transaction: then `spoil` it.
        """

    @abstractmethod
    def spoil(self) -> None:
        """Note that effects may be in the space without their places; none is open now."""

    @abstractmethod
    def pass_by(self, event: Event, cursor: Head | None, failure: Failure | None, /) -> None:
        """Note where the scan is, without the effects of *event*.

        Its aggregate is past it then; with *failure* it stays there, and that is noted.
        """

    @abstractmethod
    def forgive(self) -> None:
        """Forget all failures, so that their aggregates are tried again."""

    @abstractmethod
    def places(self, addresses: Sequence[Address], /) -> Mapping[Address, int]:
        """The next sequences of *addresses*; those without any event are left out."""

    @abstractmethod
    def switch_over(self, fill: Fill, /, *, force: bool) -> SwitchedOver | Busy:
        """Put the rebuilt read model in the place of the live one, in one transaction.

        What the live one has handled meanwhile is brought up by *fill* before that, while others
        cannot write. Raises RebuildError where it has handled events that no book has; with *force*
        their effects are given up.
        """

    @abstractmethod
    def compare(self, fill: Fill, /) -> Compared | Ahead | Busy:
        """Compare both read models at the same events, while others cannot write."""

    @abstractmethod
    def abandon(self) -> Abandoned | None:
        """Remove the space, begun or not; None: there was none. It may be begun again."""

    @abstractmethod
    def close(self) -> None:
        """Leave the space as it is for a later run; safe to call twice."""
