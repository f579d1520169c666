"""Outbox: port by which sagas and aggregates send what follows from a decision."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Final, Protocol

from pydantic import TypeAdapter

from angzarr.aggregates.command import Command
from angzarr.events.event import Event
from angzarr.sagas.rejection import Rejection

_COMMANDS: Final = TypeAdapter(tuple[Command, ...])


class Outbox(Protocol):
    """Sends; what is sent twice has the same ids, and is handled once.

    All verbs return once everything is confirmed, and raise BrokerUnavailable otherwise.
    """

    @abstractmethod
    def publish(self, events: Sequence[Event], /) -> None:
        """Send *events* to whoever takes them; nobody may."""

    @abstractmethod
    def send(self, commands: Sequence[Command], /) -> None:
        """Send each command to its aggregate."""

    @abstractmethod
    def tell(self, rejection: Rejection, asked: int = 0, /) -> None:
        """Tell the source of *rejection*; *asked*: how often people have had it asked anew."""

    @abstractmethod
    def escalate(self, rejection: Rejection, reason: str, /) -> None:
        """Call a person: nobody undid what led to the rejected command, for *reason*."""


def written_commands(commands: Sequence[Command]) -> Any:
    """Return *commands* as JSON, to be kept with a decision."""
    return _COMMANDS.dump_python(tuple(commands), mode="json")


def read_commands(written: Any) -> tuple[Command, ...]:
    """Return what `written_commands` wrote."""
    return _COMMANDS.validate_python(written or ())
