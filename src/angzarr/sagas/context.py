"""CompensationContext: what whoever compensates knows of a rejected command (spec C4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import DecodeError as ProtobufDecodeError

from angzarr.aggregates.command import Command, Origin
from angzarr.aggregates.wire_form import command_from_wire
from angzarr.errors import DecodeError
from angzarr.events.event import Event, decoder_for
from angzarr.sagas.rejection import Rejection
from angzarr.wire.book_pb2 import CommandBook
from angzarr.wire.rejection_pb2 import Notification, RejectionNotification, RevokeEventCommand

#: Where a notification names the saga: the header of a command has no field for it.
SAGA_NAME: Final = "saga_name"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompensationContext:
    """A rejected command, why it was rejected, and the event that led to it."""

    saga_origin: Origin
    rejection_reason: str
    rejected_command: Command
    correlation_id: str | None = None

    @property
    def command(self) -> Event:
        """The rejected command's message: type, data, target."""
        return self.rejected_command.event

    def command_as(self, declared: object) -> Any:
        """Return the rejected command's data as a type; raises DecodeError."""
        return decoder_for(declared)(self.command.data)

    @classmethod
    def of(cls, rejection: Rejection) -> CompensationContext:
        """Return the context of a rejection that arrived here."""
        return cls(
            saga_origin=rejection.origin,
            rejection_reason=rejection.reason,
            rejected_command=rejection.command,
            correlation_id=rejection.correlation_id,
        )

    @classmethod
    def from_rejected_command(
        cls, rejected: Command | CommandBook, reason: str, *, saga: str = ""
    ) -> CompensationContext | None:
        """Return the context, or None for a command that no saga sent; raises DecodeError."""
        command = rejected
        if isinstance(command, CommandBook):
            command = command_from_wire(command, saga=saga)
        if command.origin is None:
            return None
        return cls(
            saga_origin=command.origin,
            rejection_reason=reason,
            rejected_command=command,
            correlation_id=command.event.correlation_id,
        )

    @classmethod
    def from_notification(cls, notification: Notification) -> CompensationContext | None:
        """Return the context of a RejectionNotification; raises DecodeError for any other."""
        told = RejectionNotification()
        try:
            fits = notification.payload.Unpack(told)
        except ProtobufDecodeError as error:
            msg = "the payload of the notification is malformed"
            raise DecodeError(msg) from error
        if not fits:
            kind = notification.payload.type_url.rpartition("/")[2] or "nothing"
            msg = f"the notification holds {kind}, not angzarr.RejectionNotification"
            raise DecodeError(msg)
        saga = _saga(notification.metadata)
        return cls.from_rejected_command(told.rejected_command, told.rejection_reason, saga=saga)

    @classmethod
    def from_revoke_command(cls, command: RevokeEventCommand) -> CompensationContext | None:
        """Return the context of the older form; raises DecodeError."""
        return cls.from_rejected_command(
            command.rejected_command, command.rejection_reason, saga=command.saga_name
        )


def _saga(metadata: Mapping[str, str]) -> str:
    return metadata.get(SAGA_NAME, "")
