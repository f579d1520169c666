"""Execute with retry: a command, built from fresh state each time until it is taken (spec C3)."""

from __future__ import annotations

import asyncio
import random
import uuid
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Protocol, TypeAlias

from angzarr.aggregates.aggregate import check_event
from angzarr.aggregates.book import Address, Book, Decision
from angzarr.aggregates.command import Command, check_expected
from angzarr.clock import Clock, SystemClock
from angzarr.errors import MaxRetriesExceededError, SequenceConflictError
from angzarr.events.event import Event, event_type_of, to_json
from angzarr.resilience.backoff import Policy, next_delay
from angzarr.resilience.policies import POLICIES

_CLOCK = SystemClock()


class CommandClient(Protocol):
    """Reaches aggregates: in this process, or over a network."""

    @abstractmethod
    def book(self, address: Address, /) -> Book:
        """Return the whole book at *address*; an empty one if nobody wrote it."""

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
        """Return the command that carries *payload*, for a book that is at *expected*.

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
    chance: Callable[[], float] = random.random,
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
    chance: Callable[[], float] = random.random,
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
        """Return the pause before the next attempt, None if this was the last."""
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
