"""Command: what an aggregate is asked to do, where that came from, and its retries (C2 to C4).

The merge strategy says what becomes of a command whose expected sequence is stale.
`execute_with_retry` builds a command anew from fresh state until it is taken.
"""

from __future__ import annotations

import asyncio
import uuid
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, is_dataclass, replace
from datetime import timedelta
from enum import Enum, IntEnum
from typing import Any, Final, Protocol, TypeAlias

from google.protobuf.message import Message
from pydantic import BaseModel

from angzarr.aggregates.book import Address, Book, Decision
from angzarr.clock import Clock, SystemClock
from angzarr.errors import MaxRetriesExceededError, NotAnEvent, SequenceConflictError
from angzarr.events import headers as names
from angzarr.events.event import Event, Typed, digest, event_type_of, to_json
from angzarr.events.headers import MAX_SEQUENCE, NoNumber, read_number
from angzarr.resilience.backoff import Policy, next_delay
from angzarr.resilience.idempotency import key_part
from angzarr.resilience.policies import POLICIES
from angzarr.runtime.chance import chance


class MergeStrategy(IntEnum):
    """What a command handler wants done about a stale expectation; the numbers are the wire's."""

    #: Refused with the current book, and retried with a command built from it.
    COMMUTATIVE = 0
    #: Refused for good.
    STRICT = 1
    #: Not checked: the aggregate decides.
    AGGREGATE_HANDLES = 2
    #: Refused for good, and a person decides: a dead letter.
    MANUAL = 3


class MergeRuling(Enum):
    """What is done with a command."""

    RUN = "run"
    #: Refused; a command built from the current book may succeed (FAILED_PRECONDITION).
    STALE = "stale"
    #: Refused for good (ABORTED).
    ABORT = "abort"
    #: Refused for good (ABORTED), and a dead letter.
    REVIEW = "review"


_ON_CONFLICT = {
    MergeStrategy.COMMUTATIVE: MergeRuling.STALE,
    MergeStrategy.STRICT: MergeRuling.ABORT,
    MergeStrategy.AGGREGATE_HANDLES: MergeRuling.RUN,
    MergeStrategy.MANUAL: MergeRuling.REVIEW,
}


def merge_ruling(strategy: MergeStrategy, expected: int | None, actual: int) -> MergeRuling:
    """What is done with a command that expects *expected* where the book is at *actual*.

    A command that expects nothing is decided on whatever is there.
    """
    if expected is None or expected == actual:
        return MergeRuling.RUN
    return _ON_CONFLICT[strategy]


_IDS: Final = uuid.UUID("0d4c9a1e-8f0a-5d0a-9a63-6f1b7d1f2c55")


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The saga that sent a command, and the event that made it do so."""

    saga: str
    source: Address
    sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command. `event` says what it is and to whom it goes; its sequence is what it expects."""

    event: Event
    origin: Origin | None = None
    #: What its sender wants done if it is stale; what the handler declares comes first.
    merge: MergeStrategy | None = None

    @property
    def id(self) -> str:
        """Its id: the same command sent twice is carried out once."""
        return self.event.id

    @property
    def address(self) -> Address:
        """The aggregate that it goes to."""
        event = self.event
        return Address(event.domain or "", event.root or "", event.edition or "")

    @property
    def digest(self) -> str:
        """Its type and its data: another command under the same id has another one."""
        return f"{self.event.type}\n{digest(self.event.data)}"

    @property
    def expected(self) -> int | None:
        """Where the book is believed to be; None: wherever it is."""
        return self.event.sequence


def check_expected(expected: object) -> int | None:
    """Where a book is believed to be; raises ValueError for what can be no sequence.

    A header that cannot be read counts as absent: a stale command would be carried out.
    """
    if expected is None:
        return None
    if type(expected) is int and 0 <= expected <= MAX_SEQUENCE:
        return expected
    msg = f"expected is the sequence that a book is at, 0 for an empty one, not {expected!r:.50}"
    raise ValueError(msg)


def task_of(domain: str, command_type: str) -> str:
    """The task that carries out commands of a type; a sender need not import it."""
    return f"command.{domain}.{command_type}"


def is_command(task: str) -> bool:
    """True if *task* carries out commands."""
    return task.startswith("command.")


def id_after(cause: str, *parts: object) -> str:
    """The id of what follows from *cause*: the same parts give the same id."""
    named = "\x00".join((key_part(cause), *map(str, parts)))
    return str(uuid.uuid5(_IDS, named.encode(errors="backslashreplace").decode()))


def origin_headers(origin: Origin | None) -> dict[str, Any]:
    """The headers that carry *origin*."""
    if origin is None:
        return {}
    written = {
        names.SAGA: origin.saga,
        names.SOURCE_DOMAIN: origin.source.domain,
        names.SOURCE_ROOT: origin.source.root,
        names.SOURCE_SEQUENCE: origin.sequence,
    }
    return written | (
        {names.SOURCE_EDITION: origin.source.edition} if origin.source.edition else {}
    )


def origin_of(headers: Mapping[str, Any]) -> Origin | None:
    """Read an origin; None where there is none, or not all of it."""
    saga, domain, root = (
        text if isinstance(text := headers.get(name), str) else ""
        for name in (names.SAGA, names.SOURCE_DOMAIN, names.SOURCE_ROOT)
    )
    sequence = read_number(headers.get(names.SOURCE_SEQUENCE), MAX_SEQUENCE)
    if not (saga and domain and root) or isinstance(sequence, NoNumber):
        return None
    edition = headers.get(names.SOURCE_EDITION)
    source = Address(domain, root, edition if isinstance(edition, str) else "")
    return Origin(saga=saga, source=source, sequence=sequence)


_CLOCK = SystemClock()


class CommandClient(Protocol):
    """Reaches aggregates: in this process, or over a network."""

    @abstractmethod
    def book(self, address: Address, /) -> Book:
        """The whole book at *address*; an empty one if there is none."""

    @abstractmethod
    def execute(self, command: Command, /) -> Decision:
        """Carry out *command*.

        Raises SequenceConflictError, with the current book where it is known, if a command built
        from that may succeed; CommandRejectedError, CommandAbortedError and all else are final.
        """


class AsyncCommandClient(Protocol):
    """The same, awaited."""

    @abstractmethod
    async def book(self, address: Address, /) -> Book:
        """See `CommandClient.book`."""

    @abstractmethod
    async def execute(self, command: Command, /) -> Decision:
        """See `CommandClient.execute`."""


def check_event(one: object) -> None:
    """Refuse what has no type that names it, and means a mistake; raises NotAnEvent.

    A class whose `__no_event__` says what it is instead is never one.
    """
    if other := getattr(type(one), "__no_event__", None):
        msg = f"{type(one).__name__} is not an event or command but {other}"
        raise NotAnEvent(msg)
    named = hasattr(type(one), "__event_type__") or is_dataclass(one)
    if isinstance(one, type) or not (named or isinstance(one, Typed | BaseModel | Message)):
        msg = (
            f"{type(one).__name__} is not an event or command: return a model, a dataclass or"
            " a message"
        )
        raise NotAnEvent(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """What somebody wants of an aggregate. The same `id` is carried out once."""

    address: Address
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    correlation_id: str | None = None
    causation_id: str | None = None
    tenant_id: str | None = None
    #: Whatever the business logic needs besides the state.
    data: Any = None

    def command(self, payload: object, expected: int | None = None) -> Command:
        """The command that carries *payload*, for a book that is at *expected*.

        Raises NotAnEvent for what has no type, such as what somebody forgot to return.
        """
        check_event(payload)
        address = self.address
        event = Event(
            id=self.id,
            type=event_type_of(payload),
            data=to_json(payload),
            domain=address.domain,
            root=address.root,
            edition=address.edition or None,
            sequence=check_expected(expected),
            correlation_id=self.correlation_id or self.id,
            causation_id=self.causation_id,
            tenant_id=self.tenant_id,
        )
        return Command(event=event)


#: The business logic: what is asked of an aggregate whose book is this. It returns a `Command`, or
#: what one carries, and raises what ends the matter: CommandRejectedError.
Build: TypeAlias = Callable[[Intent, Book], object]
#: Keeps a command that was not taken in all its attempts, with the last error.
Bury: TypeAlias = Callable[[Command, Exception], None]


def execute_with_retry(
    intent: Intent,
    build_command: Build,
    client: CommandClient,
    *,
    policy: Policy = POLICIES["saga_command"],
    dead_letter: Bury | None = None,
    clock: Clock = _CLOCK,
    chance: Callable[[], float] = chance,
) -> Decision:
    """Build the command of *intent* and execute it, anew from fresh state at each conflict.

    The state is the client's at first, then that of the error's details. Only conflicts are
    retried; whatever else *build_command* or *client* raises ends it. Raises
    MaxRetriesExceededError once the attempts of *policy* are used up, after *dead_letter* has
    the command.
    """
    course = _Course(intent, build_command, policy, chance)
    book: Book | None = None
    while True:
        command = course.build(client.book(intent.address) if book is None else book)
        try:
            return client.execute(command)
        except SequenceConflictError as conflict:
            if (delay := course.after()) is None:
                raise course.ended(command, conflict, dead_letter) from conflict
            clock.sleep(delay)
            book = conflict.book


async def aexecute_with_retry(
    intent: Intent,
    build_command: Build,
    client: AsyncCommandClient,
    *,
    policy: Policy = POLICIES["saga_command"],
    dead_letter: Bury | None = None,
    clock: Clock = _CLOCK,
    chance: Callable[[], float] = chance,
) -> Decision:
    """Do as `execute_with_retry`, awaiting *client*; *dead_letter* is called in a thread."""
    course = _Course(intent, build_command, policy, chance)
    book: Book | None = None
    while True:
        command = course.build(await client.book(intent.address) if book is None else book)
        try:
            return await client.execute(command)
        except SequenceConflictError as conflict:
            if (delay := course.after()) is None:
                over = await asyncio.to_thread(course.ended, command, conflict, dead_letter)
                raise over from conflict
            await clock.asleep(delay)
            book = conflict.book


@dataclass(slots=True)
class _Course:
    """What both colours share: which attempt it is, and what comes after it."""

    intent: Intent
    build_command: Build
    policy: Policy
    chance: Callable[[], float]
    attempt: int = 1

    def build(self, book: Book) -> Command:
        built = self.build_command(self.intent, book)
        if not isinstance(built, Command):
            return self.intent.command(built, book.next_sequence)
        if built.expected is None:
            return replace(built, event=replace(built.event, sequence=book.next_sequence))
        return built

    def after(self) -> timedelta | None:
        """The pause before the next attempt, None if this was the last."""
        delay = next_delay(self.policy, self.attempt, self.chance())
        self.attempt += 1
        return delay

    def ended(
        self, command: Command, conflict: Exception, dead_letter: Bury | None
    ) -> MaxRetriesExceededError:
        """Bury *command*; return the error that says so."""
        if dead_letter is not None:
            dead_letter(command, conflict)
        msg = (
            f"{command.event.type} of {command.address} was stale {self.attempt - 1} times, no"
            f" attempt is left; last: {conflict}"
        )
        return MaxRetriesExceededError(msg)
