"""Decider: carries out commands against the event books of this process (spec C1, C2).

A decision is kept with the events that it appends, in one transaction: the same command, delivered
again, gets the same decision. The `Relay` publishes the events of decisions whose process died, or
lost the broker, before it did so. Deliveries need none: their messages come again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple, TypeVar

from angzarr.aggregates.aggregate import AggregateType
from angzarr.aggregates.book import (
    Address,
    Book,
    Decision,
    EventBooks,
    Reading,
    Stale,
    Write,
    WriteVerdict,
    check_address,
)
from angzarr.aggregates.command import Command, MergeRuling, MergeStrategy, merge_ruling
from angzarr.clock import Clock
from angzarr.errors import (
    BrokerUnavailable,
    CommandAbortedError,
    CommandRejectedError,
    IdempotencyConflictError,
    SequenceConflictError,
    Unavailable,
    UnknownCommand,
    text_of,
)
from angzarr.events.event import Event
from angzarr.resilience.backoff import Policy, next_delay
from angzarr.resilience.policies import POLICIES
from angzarr.runtime.failures import LogThrottle

T = TypeVar("T")

#: Characters of a rejection's reason that are kept.
MAX_REASON: Final = 4_000


class CommandMismatch(NamedTuple):
    """A command that a person must look at: where it believed its aggregate, and where that is."""

    command: Command
    expected: int
    actual: int
    strategy: MergeStrategy


@dataclass(slots=True)
class Races:
    """Counts how often a book went on while something was decided about it."""

    policy: Policy
    clock: Clock
    chance: Callable[[], float]
    count: int = 0

    def lost(self, address: Address) -> None:
        """Pause after a lost race; raises SequenceConflictError once there were too many."""
        self.count += 1
        delay = next_delay(self.policy, self.count, self.chance())
        if delay is None:
            msg = f"{address} went on {self.count} times while something was decided about it"
            raise SequenceConflictError(msg)
        self.clock.sleep(delay)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decider:
    """Carries out commands against the books of this process. Fulfils `CommandClient`.

    Safe to use from threads.
    """

    books: EventBooks
    aggregates: Mapping[str, AggregateType]
    clock: Clock
    chance: Callable[[], float]
    policy: Policy = POLICIES["saga_command"]
    #: Whether it is uncertain that its events are sent: see `Write.unsent`.
    unsent: bool = False
    #: Takes what a person must look at before the caller hears of it; may raise.
    for_review: Callable[[CommandMismatch], None] = lambda _mismatch: None

    def book(self, address: Address) -> Book:
        """The whole book at *address*; raises StoreUnavailable."""
        return self.books.read(check_address(address), whole=True).book

    def execute(self, command: Command) -> Decision:
        """Decide *command* and keep what was decided; the same command gets the same decision.

        A command that expects nothing is decided anew, by the policy, whenever another one was
        appended meanwhile. Raises CommandRejectedError, SequenceConflictError with the current
        book, CommandAbortedError, UnknownCommand, DecodeError, StoreUnavailable.
        """
        check_address(command.address)
        races = self.races()
        while isinstance(found := self._try(command), Stale):
            if command.expected is None:  # else it is stale now, and that is said at once
                races.lost(command.address)
        if found.verdict is WriteVerdict.REJECTED:
            raise CommandRejectedError(found.reason)
        return found

    def races(self) -> Races:
        """What counts the races that one decision loses, and pauses after each."""
        return Races(self.policy, self.clock, self.chance)

    def _try(self, command: Command) -> Decision | Stale:
        kind = self.aggregate(command.address.domain)
        reading = read(self.books, kind, command.address, command.id)
        if reading.decision is not None:
            return _same(command, reading.decision)
        strategy = kind.merge(command)
        self._check(command, strategy, reading.book)
        decision = self._decision(kind, reading.book, command)
        # Only a method knows whether what it decided still holds where others were appended.
        declared = kind.method(command.event.type).merge is MergeStrategy.AGGREGATE_HANDLES
        free = declared or decision.verdict is WriteVerdict.REJECTED
        expected = None if free else reading.book.next_sequence
        write = write_of(kind, reading.book, decision, self.clock, expected=expected)
        written = self.books.write(replace(write, unsent=self.unsent))
        return written if isinstance(written, Stale) else _same(command, written.decision)

    def aggregate(self, domain: str) -> AggregateType:
        """The class for the aggregates of *domain*; raises UnknownCommand."""
        kind = self.aggregates.get(domain)
        if kind is None:
            known = ", ".join(sorted(self.aggregates)) or "none"
            msg = f"no aggregate is registered for the domain {domain!r}; known are: {known}"
            raise UnknownCommand(msg)
        return kind

    def _check(self, command: Command, strategy: MergeStrategy, book: Book) -> None:
        """Raise what becomes of a stale command (spec C2)."""
        expected, actual = command.expected, book.next_sequence
        done = merge_ruling(strategy, expected, actual)
        if done is MergeRuling.RUN or expected is None:
            return
        said = (
            f"{command.event.type} expects {command.address} at {expected},"
            f" it is at {actual} ({strategy.name})"
        )
        if done is MergeRuling.STALE:
            raise SequenceConflictError(said, self.book(command.address))
        if done is MergeRuling.REVIEW:
            self.for_review(CommandMismatch(command, expected, actual, strategy))
        review = done is MergeRuling.REVIEW
        raise CommandAbortedError(said, expected=expected, actual=actual, review=review)

    def _decision(self, kind: AggregateType, book: Book, command: Command) -> Decision:
        """What the aggregate decides; a rejection is kept where a saga hears of it.

        A sender without an origin may send it again.
        """
        try:
            events = kind(book).decide(command)
            return Decision(cause=command.id, events=events, digest=command.digest)
        except CommandRejectedError as rejected:
            if command.origin is None:
                raise
            reason = text_of(rejected)[:MAX_REASON]
            return Decision(
                cause=command.id,
                verdict=WriteVerdict.REJECTED,
                reason=reason,
                digest=command.digest,
            )


def _same(command: Command, decision: Decision) -> Decision:
    """*decision* if it is of *command*; raises IdempotencyConflictError if of another.

    A command that is rebuilt from fresh state, which says where that was, may have other data.
    """
    of_type, mine = decision.digest.partition("\n")[0], command.digest
    rebuilt = command.expected is not None and of_type == command.event.type
    if rebuilt or decision.digest == mine:
        return decision
    msg = (
        f"the id {command.id!r} was used before for another command or event of {command.address}:"
        " give each an id of its own"
    )
    raise IdempotencyConflictError(msg)


def read(
    books: EventBooks, kind: AggregateType, address: Address, cause: str | None = None
) -> Reading:
    """The book for *kind*: from its beginning where its snapshot is of another state."""
    reading = books.read(address, cause=cause)
    snapshot = reading.book.snapshot
    if snapshot is None or kind.reads(snapshot):
        return reading
    return books.read(address, cause=cause, whole=True)


def decide_once(
    books: EventBooks,
    kind: AggregateType,
    address: Address,
    cause: str,
    *,
    decide: Callable[[Book], Decision | T],
    races: Races,
) -> Decision | T:
    """What was decided of *cause*, or what *decide* makes of the book as it is now.

    A decision is kept, and made anew as long as others append meanwhile; anything else is
    returned as it is. Raises SequenceConflictError once *races* are lost too often.
    """
    while True:
        book, decided = read(books, kind, address, cause)
        made = decide(book) if decided is None else decided
        if made is decided or not isinstance(made, Decision):
            return made
        write = write_of(kind, book, made, races.clock, expected=book.next_sequence)
        written = books.write(write)
        if not isinstance(written, Stale):
            return written.decision
        races.lost(address)


def write_of(
    kind: AggregateType, book: Book, decision: Decision, clock: Clock, *, expected: int | None
) -> Write:
    """What keeps *decision*, made on *book*, with a snapshot where one is due."""
    now = clock.now()
    events: tuple[Event, ...] = tuple(replace(one, occurred_at=now) for one in decision.events)
    snapshot = None
    if events and expected is not None and kind.snapshot_every:
        snapshot = kind(book).snapshot_after(events)
    return Write(
        address=book.address,
        decision=replace(decision, events=events),
        expected=expected,
        snapshot=snapshot,
    )


_log = logging.getLogger("angzarr.aggregates")

#: How long the process that decided has to publish it itself.
GRACE: Final = timedelta(seconds=30)
EVERY: Final = timedelta(seconds=10)
BATCH: Final = 100
#: What was refused is tried again after this.
AGAIN: Final = timedelta(minutes=10)


@dataclass(slots=True, kw_only=True)
class Relay:
    """Fulfils `Turns`; any number of processes may do it at once: events have their ids."""

    books: EventBooks
    publish: Callable[[Sequence[Event]], None]
    clock: Clock
    chance: Callable[[], float]
    seldom: LogThrottle = field(default_factory=LogThrottle)
    #: What could not be sent, and when that was.
    _refused: dict[tuple[Address, str], datetime] = field(default_factory=dict, init=False)

    def turn(self) -> timedelta:
        """Publish a batch; return how long to wait before the next turn. Never raises."""
        try:
            sent = self.relay()
        except Exception as error:  # noqa: BLE001 - what is unsent stays so, and is tried again
            if self.seldom.now("away"):
                _log.warning("relay_waits: %s", text_of(error))
            sent = 0
        return timedelta(0) if sent == BATCH else EVERY * (0.5 + self.chance())

    def relay(self) -> int:
        """Publish what is overdue, a batch at most; return how many decisions that was."""
        now = self.clock.now()
        self._refused = {place: at for place, at in self._refused.items() if now - at < AGAIN}
        overdue = self.books.unsent(now - GRACE, BATCH + len(self._refused))
        fresh = [one for one in overdue if (one.address, one.decision.cause) not in self._refused]
        return sum(self._send(address, decision) for address, decision in fresh)

    def _send(self, address: Address, decision: Decision) -> bool:
        """Publish one; what is refused stays unsent, is tried later, and holds up no other."""
        try:
            self.publish(decision.events)
        except Unavailable as away:
            if not (isinstance(away, BrokerUnavailable) and away.refused):
                raise
            return self._put_off(address, decision, away)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with it, the others wait
            return self._put_off(address, decision, error)
        self.books.sent(address, decision.cause)
        return True

    def _put_off(self, address: Address, decision: Decision, error: Exception) -> bool:
        self._refused[address, decision.cause] = self.clock.now()
        if self.seldom.now("refused"):
            cause = decision.cause
            _log.error("relay_refused: %s of %s is not sent: %s", cause, address, text_of(error))
        return False

    def leave(self) -> None:
        """Let the books go."""
        self.books.close()
