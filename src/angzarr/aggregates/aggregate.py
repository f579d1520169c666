"""Aggregate: a state made of the events of a book, and the methods that decide commands (C1).

It decides on its state alone: no I/O, so that a command may be decided again on fresh state. A
snapshot keeps the state as JSON. Pure.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace
from types import GeneratorType
from typing import Any, ClassVar, Final, Generic, TypeAlias, TypeVar, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from angzarr.aggregates.book import Address, Book, Retention, Snapshot
from angzarr.aggregates.command import Command, MergeStrategy, check_event, id_after
from angzarr.aggregates.decorators import Method, Methods, methods_of
from angzarr.errors import (
    AngzarrError,
    BookUnreadable,
    ConfigurationError,
    DecodeError,
    UnknownCommand,
    UnserializableEvent,
)
from angzarr.events.event import Event, adapter_for, decoder_for, event_type_of, to_json


def written(state_type: Any, state: object) -> Any:
    """*state* as JSON from which it can be read; raises UnserializableEvent.

    What is not read back as an equal state is refused: fields that are left out, keys that JSON
    makes text, and types that compare nothing.
    """
    try:
        data = adapter_for(state_type).dump_python(state, mode="json")
        if read(state_type, data) == state:
            return data
        why = "another state is read from it"
    except (PydanticSerializationError, DecodeError, ValueError, TypeError) as error:
        why = type(error).__name__
    name = getattr(state_type, "__name__", state_type)
    msg = f"a state of type {name} cannot be kept as JSON: {why}"
    raise UnserializableEvent(msg)


def read(state_type: Any, data: Any) -> Any:
    """The state that *data* is, which shares nothing with it; raises DecodeError."""
    return decoder_for(state_type)(copied(data))


def is_one(state_type: Any, state: object) -> bool:
    """True if *state* is of its type, as far as Python can tell."""
    if not isinstance(state_type, type):
        return True
    try:
        return isinstance(state, (int, float) if state_type is float else state_type)
    except TypeError:  # a TypedDict is asked nothing
        return True


def copied(data: Any) -> Any:
    """The JSON value *data*, which shares nothing with it that could be changed."""
    if isinstance(data, dict):
        return {key: copied(value) for key, value in data.items()}
    return [copied(value) for value in data] if isinstance(data, list) else data


State = TypeVar("State")

_log: Final = logging.getLogger("angzarr.aggregates")


class Aggregate(Generic[State]):
    """A subclass names the type of its state: ``class Player(Aggregate[Funds])``.

    The state's type is made without arguments at first, and is a pydantic model, a dataclass or
    anything else that pydantic reads and writes.
    """

    #: Set where the class is registered.
    domain: ClassVar[str] = ""
    #: A snapshot is kept every so many events; 0: none.
    snapshot_every: ClassVar[int] = 0
    #: Whether older ones are kept.
    snapshot_retention: ClassVar[Retention] = Retention.DEFAULT
    #: Of the state's type: snapshots of another one are not read.
    state_version: ClassVar[int] = 1
    methods: ClassVar[Methods]
    state_type: ClassVar[Any] = None

    #: What the events so far made of it.
    state: State
    address: Address
    #: How many events its book has.
    next_sequence: int
    #: The command that is being decided; None outside of that.
    command: Command | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        """Read what the methods declare, and the type of the state."""
        super().__init_subclass__(**options)
        cls.methods = methods_of(cls)
        if cls.state_type is None:
            cls.state_type = next(_states_named(cls), None)

    def __init__(self, book: Book) -> None:
        self.address = book.address
        self.next_sequence = book.next_sequence
        self.state, covered = self._first_state(book)
        for event in book.events:
            if event.sequence is None or event.sequence >= covered:
                self.apply(event)

    @classmethod
    def check(cls) -> None:
        """Refuse a class that cannot work; raises ConfigurationError."""
        if cls.state_type is None:
            msg = f"{cls.__qualname__} names no state: class {cls.__name__}(Aggregate[YourState])"
            raise ConfigurationError(msg)
        try:
            cls.state_type()
        except (TypeError, ValidationError) as error:
            msg = (
                f"the state of {cls.__qualname__} cannot be made without arguments: give the"
                f" fields of {getattr(cls.state_type, '__name__', cls.state_type)} defaults"
            )
            raise ConfigurationError(msg) from error
        adapter_for(cls.state_type)
        if cls.snapshot_every < 0:
            msg = f"{cls.__qualname__}.snapshot_every is a number of events, or 0 for no snapshots"
            raise ConfigurationError(msg)

    def apply(self, event: Event) -> None:
        """Change the state by *event*, if a method applies its type; raises BookUnreadable.

        *event* stays as it is. What the method raises of a delivery, such as CommandRejectedError,
        says nothing of what happened long ago.
        """
        method = self.methods.applies.get(event.type)
        if method is None:
            return
        try:
            state = getattr(self, method.name)(method.decode(copied(event.data)))
        except AngzarrError as error:
            msg = f"event {event.sequence} of {self.address}, a {event.type}: {error}"
            raise BookUnreadable(msg) from error
        if state is None:
            return
        if not is_one(self.state_type, state):
            msg = (
                f"{type(self).__qualname__}.{method.name} returns {type(state).__name__}, which is"
                f" no state: it returns {self.state_type.__name__} or nothing"
            )
            raise BookUnreadable(msg)
        self.state = state

    def decide(self, command: Command) -> tuple[Event, ...]:
        """The events that *command* leads to; they have no sequence yet.

        Raises UnknownCommand, DecodeError, and what the method raises: CommandRejectedError.
        """
        method = self.method(command.event.type)
        data = method.decode(copied(command.event.data))  # it may be decided again
        self.command = command
        try:
            return tuple(self.events_of(getattr(self, method.name)(data), command.event))
        finally:
            self.command = None

    @classmethod
    def method(cls, command_type: str) -> Method:
        """The method that decides commands of a type; raises UnknownCommand."""
        found = cls.methods.handles.get(command_type)
        if found is None:
            msg = f"{cls.__qualname__} of domain {cls.domain!r} handles no {command_type!r}"
            raise UnknownCommand(msg)
        return found

    @classmethod
    def merge(cls, command: Command) -> MergeStrategy:
        """What is done if *command* is stale: its method's word, else its sender's."""
        declared = cls.method(command.event.type).merge
        if declared is not None:
            return declared
        return MergeStrategy.COMMUTATIVE if command.merge is None else command.merge

    def events_of(self, answered: Any, cause: Event) -> Iterator[Event]:
        """Yield what a method *answered* to *cause* as events of this aggregate's, in its flow.

        The same cause and answer give the same ids. Raises NotAnEvent, and
        UnserializableEvent for what could not be read again.
        """
        for index, one in enumerate(listed(answered)):
            name, data = self._written(one)
            yield Event(
                id=id_after(cause.id, *self.address, index),
                type=name,
                data=data,
                correlation_id=cause.correlation_id or cause.id,
                causation_id=cause.id,
                tenant_id=cause.tenant_id,
                priority=cause.priority,
                config_pins=cause.config_pins,
                traceparent=cause.traceparent,
                depth=cause.depth + 1,
            )

    def snapshot_after(self, events: Iterable[Event]) -> Snapshot | None:
        """A snapshot of the state after *events*, if one is due; applies them.

        There is none of a state that could not be read from it.
        """
        events = tuple(events)
        before, after = self.next_sequence, self.next_sequence + len(events)
        if not self.snapshot_every or before // self.snapshot_every == after // self.snapshot_every:
            return None
        for index, event in enumerate(events):
            self.apply(replace(event, sequence=before + index))
        try:
            state = written(self.state_type, self.state)
        except UnserializableEvent as error:
            _log.warning("snapshot_not_kept: of %s: %s", self.address, error)
            return None
        return Snapshot(
            sequence=after,
            state=state,
            version=self.state_version,
            retention=self.snapshot_retention,
        )

    @classmethod
    def reads(cls, snapshot: Snapshot) -> bool:
        """True if *snapshot* is of the state as it is declared now."""
        try:
            cls._read(snapshot)
        except DecodeError:
            return False
        return True

    @classmethod
    def _read(cls, snapshot: Snapshot) -> Any:
        if snapshot.version != cls.state_version:
            msg = f"the snapshot has version {snapshot.version}, not {cls.state_version}"
            raise DecodeError(msg)
        return read(cls.state_type, snapshot.state)

    def _first_state(self, book: Book) -> tuple[State, int]:
        """The state before the events of *book*, and how many it covers."""
        snapshot = book.snapshot
        if snapshot is None:
            return self.state_type(), 0
        try:
            return self._read(snapshot), snapshot.sequence
        except DecodeError as error:
            msg = f"the snapshot at {snapshot.sequence} of {book.address}: {error}"
            raise BookUnreadable(msg) from error

    def _written(self, one: Any) -> tuple[str, Any]:
        """The type and the data of an event; a book with one that does not fit is lost."""
        check_event(one)
        name, data = event_type_of(one), to_json(one)
        try:
            if name in self.methods.applies:
                self.methods.applies[name].decode(copied(data))
        except DecodeError as error:
            owner = type(self).__qualname__
            msg = f"{owner} could not read the {name} that it answers: {error}"
            raise UnserializableEvent(msg) from error
        return name, data


def listed(answered: Any) -> list[Any]:
    """What a method answered as a list: nothing, one thing or several."""
    if answered is None:
        return []
    # A named tuple is one thing.
    several = type(answered) in (list, tuple) or isinstance(answered, GeneratorType)
    return list(answered) if several else [answered]


def _states_named(owner: type) -> Iterator[Any]:
    """Yield the states that the bases of *owner* name: ``Aggregate[Funds]``."""
    for base in getattr(owner, "__orig_bases__", ()):
        origin = get_origin(base)
        if isinstance(origin, type) and issubclass(origin, Aggregate):
            yield from (one for one in get_args(base) if not isinstance(one, TypeVar))


#: A class for the aggregates of a domain.
AggregateType: TypeAlias = type[Aggregate[Any]]
