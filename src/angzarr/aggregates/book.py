"""Book: the events of one aggregate in order; the ports of their stores (C1, P2, P4).

Sequences count from 0, so that `next_sequence` is how many events the book has. The event store
reads all books as one. Events that were published without a book are in none.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol, TypeAlias
from uuid import UUID

from angzarr.errors import InvalidRoot
from angzarr.events.event import Event, check_domain

#: Characters that a root or an edition may have: they are keys in a database.
MAX_KEY_LENGTH: Final = 255


class Address(NamedTuple):
    """Which aggregate: the wire calls it a cover. An empty `edition` is the main line."""

    domain: str
    root: str
    edition: str = ""

    def __str__(self) -> str:
        """Return it as commands take it."""
        edition = f"@{self.edition}" if self.edition or "@" in self.root else ""
        return f"{self.domain}/{self.root}{edition}"


def check_address(address: Address) -> Address:
    """*address* if a store can keep it; raises InvalidDomainName, InvalidRoot."""
    check_domain(address.domain)
    _check_key("root", address.root)
    if address.edition:
        _check_key("edition", address.edition)
    return address


def root_text(root: object) -> str:
    """The root of an address as text; raises InvalidRoot for what is neither text nor UUID.

    ``str`` would make one aggregate of all whose root was lost.
    """
    if isinstance(root, str | UUID):
        return str(root)
    msg = f"root must be a string or a UUID; got {type(root).__name__}"
    raise InvalidRoot(msg)


def _check_key(what: str, text: str) -> None:
    if not text or len(text) > MAX_KEY_LENGTH or not text.isprintable():
        msg = (
            f"{what} must have 1 to {MAX_KEY_LENGTH} printable characters, best a UUID;"
            f" got {text[:50]!r}"
        )
        raise InvalidRoot(msg)


class Retention(StrEnum):
    """How long a snapshot is kept."""

    #: Until a newer one is there.
    DEFAULT = "default"
    PERSIST = "persist"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The state after all events before `sequence`, as JSON; `version` is that of its type."""

    sequence: int
    state: Any
    version: int = 1
    retention: Retention = Retention.DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class Book:
    """An aggregate's events; those that its snapshot covers may be left out."""

    address: Address
    events: tuple[Event, ...] = ()
    snapshot: Snapshot | None = None
    next_sequence: int = 0


class WriteVerdict(StrEnum):
    """What was decided of a cause."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What an aggregate decided of one cause: a command, an event or a notification.

    It is kept beside the book, so that the cause, delivered again, has the same consequences.
    """

    cause: str
    verdict: WriteVerdict = WriteVerdict.ACCEPTED
    reason: str = ""
    #: What was appended, numbered.
    events: tuple[Event, ...] = ()
    #: Whatever else is to follow from it, as JSON.
    notes: Any = None
    #: Which command it is of, where it is of one: see `Command.digest`.
    digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """A decision to be kept, and what it appends; the store numbers the events.

    It is refused unless the book is at `expected`; None appends wherever the book is.
    """

    address: Address
    decision: Decision
    expected: int | None = None
    snapshot: Snapshot | None = None
    #: Whether its cause will not be delivered again: its events count as unsent until `sent`.
    unsent: bool = False


class Kept(NamedTuple):
    """The decision is kept: this one, or the one that was made of the same cause before."""

    decision: Decision
    anew: bool


class Stale(NamedTuple):
    """The book is elsewhere; nothing was written."""

    next_sequence: int


Answer: TypeAlias = Kept | Stale


class Reading(NamedTuple):
    """A book, and what was decided of the cause that was asked for."""

    book: Book
    decision: Decision | None = None


class Unsent(NamedTuple):
    """A decision whose events may not have been published."""

    address: Address
    decision: Decision


class EventBooks(Protocol):
    """Where books are kept. All verbs raise StoreUnavailable. Safe to use from threads."""

    @abstractmethod
    def read(
        self, address: Address, /, *, cause: str | None = None, whole: bool = False
    ) -> Reading:
        """The book at *address*, from its newest snapshot on; *whole*: from the beginning.

        Both answers are of one moment. A book that was never written is empty.
        """

    @abstractmethod
    def write(self, write: Write, /) -> Answer:
        """Keep a decision and append its events, all or nothing; safe to repeat.

        A cause that was decided before has that decision, whatever *write* expects now.
        """

    @abstractmethod
    def unsent(self, before: datetime, limit: int, /) -> Sequence[Unsent]:
        """Decisions of before *before* whose events count as unsent, the oldest first."""

    @abstractmethod
    def sent(self, address: Address, cause: str, /) -> None:
        """Note that what was decided of *cause* is sent; safe to repeat."""

    @abstractmethod
    def prune(self, before: datetime, /, *, limit: int) -> int:
        """Forget up to *limit* decisions of before *before*, the oldest; return how many.

        Events stay, and so do decisions whose events count as unsent. Those that another caller
        forgets are passed over. A cause that comes again is decided anew.
        """

    @abstractmethod
    def close(self) -> None:
        """Let connections go; safe to call twice."""


def numbered(events: Sequence[Event], address: Address, first: int) -> tuple[Event, ...]:
    """*events* as pages of the book at *address*, the first with sequence *first*."""
    return tuple(
        replace(
            event,
            domain=address.domain,
            root=address.root,
            edition=address.edition or None,
            sequence=first + index,
        )
        for index, event in enumerate(events)
    )


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
        """Where the books of *domains* are, in an order of addresses, those behind *after*.

        The order is the store's own, and stays as it is.
        """

    @abstractmethod
    def scan(self, domains: Sequence[str], start: Head | None, limit: int, /) -> Sequence[Event]:
        """Events of *domains* in the order of `heads`, each book's in sequence.

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
