"""Saga and ProcessManager: what answers events with commands (spec C2, C4).

A saga has no state: the same event leads to the same commands, whose ids follow from it. A process
manager keeps a book of its own, one for each process.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, NamedTuple, TypeVar

from angzarr.aggregates.aggregate import Aggregate, listed
from angzarr.aggregates.book import Address, check_address, root_text
from angzarr.aggregates.command import Command, Origin, check_event, check_expected, id_after
from angzarr.aggregates.decorators import Methods, methods_of
from angzarr.errors import ConfigurationError, InvalidRoot
from angzarr.events.event import Event, event_type_of, to_json

State = TypeVar("State")


@dataclass(frozen=True, slots=True)
class Send:
    """A command that a saga or a process manager sends: what, and to which aggregate."""

    __no_event__: ClassVar[str] = (
        "what a saga, a process manager or the answer to a rejection has sent"
    )

    payload: object
    _: KW_ONLY
    domain: str
    root: str | uuid.UUID
    #: By default that of the event it answers.
    edition: str | None = None
    #: Where the aggregate is believed to be; None: wherever it is.
    expected: int | None = None


class Saga:
    """A subclass marks methods with `@reacts_to`; they return `Send`, some or none.

    The methods must be deterministic and do no I/O: an event that comes again must lead to the same
    commands, which are then recognised by their ids.
    """

    #: Set where the class is registered.
    name: ClassVar[str] = ""
    methods: ClassVar[Methods]

    def __init_subclass__(cls, **options: Any) -> None:
        """Read what the methods declare."""
        super().__init_subclass__(**options)
        cls.methods = methods_of(cls)

    #: The event that is being answered.
    event: Event

    def __init__(self, event: Event) -> None:
        self.event = event

    @classmethod
    def check(cls) -> None:
        """Refuse a class that cannot work; raises ConfigurationError."""
        _check(cls, cls.methods)
        for kind in ("handles", "applies", "rejected"):
            if getattr(cls.methods, kind):
                msg = (
                    f"{cls.__qualname__} has no state, so it cannot use @{kind}: derive it from"
                    " ProcessManager[YourState]"
                )
                raise ConfigurationError(msg)


class ProcessManager(Aggregate[State]):
    """A saga with a state: ``class Fulfilment(ProcessManager[Progress])``.

    Its methods with `@reacts_to` return events of its own, `Send`, or a list of both. It is told of
    the rejection of its commands (`@rejected`) and records them in its own book.
    """

    #: Set where the class is registered; also the domain of its books.
    name: ClassVar[str] = ""

    #: The event that is being answered; None outside of that.
    event: Event | None = None

    @classmethod
    def root_of(cls, event: Event) -> str | uuid.UUID:
        """The root of the book of the process that *event* belongs to: its correlation id.

        Override it where a process is found by something else.
        """
        return event.correlation_id or event.id

    @classmethod
    def address_for(cls, event: Event) -> Address:
        """The book of the process that *event* belongs to; raises InvalidRoot."""
        root = cls.root_of(event)
        if not root:
            msg = f"{cls.__qualname__}.root_of says of no process that a {event.type} belongs to it"
            raise InvalidRoot(msg)
        return check_address(Address(cls.domain, str(root), event.edition or ""))

    def react(self, event: Event) -> object:
        """The answer of the method for *event*; raises DecodeError if it does not fit."""
        method = self.methods.reacts_to[event.type]
        self.event = event
        return getattr(self, method.name)(method.decode(event.data))

    @classmethod
    def check(cls) -> None:
        """Refuse a class that cannot work; raises ConfigurationError."""
        super().check()
        _check(cls, cls.methods)


def _check(owner: type, methods: Methods) -> None:
    if not methods.reacts_to:
        msg = f"{owner.__qualname__} reacts to nothing: mark a method with @reacts_to(SomeEvent)"
        raise ConfigurationError(msg)


class Reaction(NamedTuple):
    """The results of an event: events of the process manager's own, and commands."""

    events: list[object]
    commands: list[Command]


def reaction(answered: object, cause: Event, saga: str, origin: Origin | None) -> Reaction:
    """Sort what a method *answered* to *cause*; raises ConfigurationError, InvalidRoot, ….

    Commands say that they come from *origin*; None: a rejection is not sent back.
    """
    events: list[object] = []
    sends: list[Send] = []
    for one in listed(answered):
        if isinstance(one, Send):
            sends.append(one)
        else:
            events.append(one)
    return Reaction(events, commands_of(sends, cause, origin, saga))


def origin_for(cause: Event, saga: str) -> Origin | None:
    """Where commands of *saga* come from: from the place of *cause* in its book, if any."""
    source = source_of(cause)
    if source is None or cause.sequence is None:
        return None
    return Origin(saga=saga, source=source, sequence=cause.sequence)


def source_of(event: Event) -> Address | None:
    """The aggregate that *event* belongs to; None: it belongs to none."""
    if event.domain is None or event.root is None or event.sequence is None:
        return None
    return Address(event.domain, event.root, event.edition or "")


def commands_of(
    sends: Iterable[Send], cause: Event, origin: Origin | None, saga: str
) -> list[Command]:
    """The commands that *sends* ask for; raises what `command_of` does.

    A command has its id by its target, its type and its number among those that are alike: a
    release that sends them in another order sends the same.
    """
    alike: Counter[tuple[str, ...]] = Counter()
    commands = []
    for send in sends:
        check_event(send.payload)
        kind = (send.domain, str(send.root), _edition(send, cause), event_type_of(send.payload))
        commands.append(command_of(send, cause, origin, saga, alike[kind]))
        alike[kind] += 1
    return commands


def command_of(send: Send, cause: Event, origin: Origin | None, saga: str, index: int) -> Command:
    """The command by which *saga* answers *cause*, in its flow; *index* of those alike.

    Raises InvalidRoot, InvalidDomainName, NotAnEvent, UnserializableEvent.
    """
    check_event(send.payload)
    address = check_address(Address(send.domain, root_text(send.root), _edition(send, cause)))
    name = event_type_of(send.payload)
    return Command(
        event=Event(
            id=id_after(cause.id, "command", saga, *address, name, index),
            type=name,
            data=to_json(send.payload),
            domain=address.domain,
            root=address.root,
            edition=address.edition or None,
            sequence=check_expected(send.expected),
            correlation_id=cause.correlation_id or cause.id,
            causation_id=cause.id,
            tenant_id=cause.tenant_id,
            priority=cause.priority,
            config_pins=cause.config_pins,
            traceparent=cause.traceparent,
            depth=cause.depth + 1,
        ),
        origin=origin,
    )


def _edition(send: Send, cause: Event) -> str:
    return (cause.edition or "") if send.edition is None else send.edition
