"""Outbox: the port by which sagas and aggregates send what follows from a decision.

A chain of events and commands that is too deep is refused: it is probably a circle.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from pydantic import TypeAdapter

from angzarr.aggregates.command import Command, Origin
from angzarr.delivery.sealed_origin import SealedOrigin
from angzarr.errors import ChainTooDeep
from angzarr.events.event import Event
from angzarr.sagas.rejection import Rejection

_COMMANDS: Final = TypeAdapter(tuple[Command, ...])


class Outbox(Protocol):
    """Sends; what is sent twice has the same ids, and is handled once.

    All verbs return once everything is confirmed, and raise BrokerUnavailable otherwise.
    """

    @abstractmethod
    def publish(self, events: Sequence[Event], sealed: SealedOrigin | None = None, /) -> None:
        """Send *events* to their handlers, if there are any.

        They are encrypted if they are made of what came encrypted, *sealed*.
        """

    @abstractmethod
    def send(self, commands: Sequence[Command], /) -> None:
        """Send each command to its aggregate."""

    @abstractmethod
    def tell(self, rejection: Rejection, asked: int = 0, /) -> None:
        """Notify the source of *rejection*; *asked*: how often people have had it asked anew.

        The notice is encrypted if the command was.
        """

    @abstractmethod
    def escalate(self, rejection: Rejection, reason: str, /) -> None:
        """Call a person: what led to the rejected command is not undone, for *reason*."""


def written_commands(commands: Sequence[Command]) -> Any:
    """*commands* as JSON, to be kept with a decision."""
    return _COMMANDS.dump_python(tuple(commands), mode="json")


def read_commands(written: Any) -> tuple[Command, ...]:
    """The commands that `written_commands` wrote."""
    return _COMMANDS.validate_python(written or ())


def check_depth(event: Event, most: int) -> None:
    """Refuse what has more than *most* before it; raises ChainTooDeep, which no retry cures."""
    if event.depth > most:
        msg = (
            f"{event.depth} events and commands came before this {event.type}: they answer each"
            f" other in a circle, or saga_compensation.max_depth ({most}) is too small"
        )
        raise ChainTooDeep(msg)


def deeper(named: Command, ours: Event, origin: Origin) -> Command:
    """*named*, which a notification brought, one deeper in the flow of *ours*.

    The wire has no field for most of that, nor for the id of the same command.
    """
    same = (named.event.type, named.event.data) == (ours.type, ours.data)
    event = replace(
        named.event,
        id=ours.id if same and named.address == Command(event=ours).address else named.id,
        correlation_id=ours.correlation_id,
        tenant_id=ours.tenant_id,
        priority=ours.priority,
        config_pins=ours.config_pins,
        traceparent=ours.traceparent,
        depth=ours.depth + 1,
    )
    return Command(event=event, origin=origin)
