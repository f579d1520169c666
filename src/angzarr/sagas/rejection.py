"""Rejection: a command that its target refused, on its way back to its source (spec C4).

CompensationContext is what the source is given: the command, why it was rejected, and its origin.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Annotated, Any, Final

from google.protobuf.message import DecodeError as ProtobufDecodeError
from pydantic import AwareDatetime, Field, TypeAdapter, ValidationError

from angzarr.aggregates.book import MAX_KEY_LENGTH, Address, check_address
from angzarr.aggregates.command import Command, Origin, id_after
from angzarr.aggregates.wire_form import command_from_wire
from angzarr.delivery.sealed_origin import SealedOrigin
from angzarr.errors import DecodeError, InvalidDomainName, InvalidRoot
from angzarr.events.event import Event, decoder_for
from angzarr.events.headers import MAX_SEQUENCE, from_headers, to_headers
from angzarr.wire.book_pb2 import CommandBook
from angzarr.wire.rejection_pb2 import Notification, RejectionNotification, RevokeEventCommand

#: The type of the message that carries it.
NOTIFICATION: Final = "angzarr.Notification"


def notification_task(domain: str) -> str:
    """The task that tells the aggregates of *domain* of rejections."""
    return f"notification.{domain}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """The notice to the source of a rejected command.

    The same command has the same rejection: `id` follows from it.
    """

    id: str
    command: Command
    origin: Origin
    reason: str
    rejected_at: datetime
    #: The message that brought the command, or its notice, if that came encrypted: what is made of
    #: it is encrypted as well.
    sealed: SealedOrigin | None = None

    @property
    def correlation_id(self) -> str | None:
        """That of the whole chain."""
        return self.command.event.correlation_id


def rejection_of(command: Command, origin: Origin, reason: str, now: datetime) -> Rejection:
    """The rejection of *command*, which came from *origin*."""
    made = id_after(command.id, "rejected")
    return Rejection(id=made, command=command, origin=origin, reason=reason, rejected_at=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectionTarget:
    """The rejected command as it travels; its flow is that of the message."""

    id: str
    type: str
    domain: str
    root: str
    edition: str | None = None
    data: Any = None
    #: The id of the event that the command answers.
    causation_id: str | None = None

    @property
    def address(self) -> Address:
        """The aggregate that refused it."""
        return Address(self.domain, self.root, self.edition or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """A rejection as it travels."""

    saga_name: str
    source: Address
    source_sequence: Annotated[int, Field(ge=0, le=MAX_SEQUENCE)]
    rejection_reason: str
    rejected_at: AwareDatetime
    command: RejectionTarget
    #: None: that of the message.
    rejection_id: str | None = None


_FORM: Final = TypeAdapter(_Written)


def target_of(command: Command) -> dict[str, Any]:
    """The part of a rejected command that travels: the fields of a `RejectionTarget`."""
    return _fields(command.event)


def _fields(carried: Event | RejectionTarget) -> dict[str, Any]:
    """The fields that both have; not a copy of the data, which may be nested deeply."""
    return {field.name: getattr(carried, field.name) for field in fields(RejectionTarget)}


def told_id(rejection_id: str, asked: int) -> str:
    """The id of the event by which a source is notified for the *asked*-th time after the first.

    It is another one each time, or it would be taken for the one that was handled.
    """
    return id_after(rejection_id, "again", asked) if asked else rejection_id


def to_event(rejection: Rejection, asked: int = 0) -> Event:
    """The event that carries *rejection* to its source.

    Where people have had the source *asked* anew it has another id each time, or it would be
    taken for the one that was handled; the rejection in it keeps its own, and so do the decision
    and whatever else follows from it.
    """
    command, origin = rejection.command.event, rejection.origin
    return Event(
        id=told_id(rejection.id, asked),
        type=NOTIFICATION,
        data={
            "rejection_id": rejection.id,
            "saga_name": origin.saga,
            "source": origin.source._asdict(),
            "source_sequence": origin.sequence,
            "rejection_reason": rejection.reason,
            "rejected_at": rejection.rejected_at.isoformat(),
            "command": target_of(rejection.command),
        },
        domain=origin.source.domain,
        root=origin.source.root,
        edition=origin.source.edition or None,
        correlation_id=command.correlation_id,
        causation_id=command.id,
        tenant_id=command.tenant_id,
        priority=command.priority,
        config_pins=command.config_pins,
        traceparent=command.traceparent,
        depth=command.depth + 1,
    )


def from_event(event: Event) -> Rejection:
    """Read the rejection that *event* carries; raises DecodeError naming what does not fit."""
    told = _told(event.data)
    made = event.id if told.rejection_id is None else told.rejection_id
    for place, id_ in (("its id", event.id), ("rejection_id", made)):
        if not id_.isprintable() or not 0 < len(id_) <= MAX_KEY_LENGTH:
            raise _refused(place)
    command = Event(
        **_fields(told.command),
        correlation_id=event.correlation_id,
        tenant_id=event.tenant_id,
        priority=event.priority,
        config_pins=event.config_pins,
        traceparent=event.traceparent,
        depth=max(event.depth - 1, 0),
    )
    origin = Origin(saga=told.saga_name, source=told.source, sequence=told.source_sequence)
    return Rejection(
        id=made,
        command=Command(event=command, origin=origin),
        origin=origin,
        reason=told.rejection_reason,
        rejected_at=told.rejected_at,
    )


def _told(data: Any) -> _Written:
    try:
        told = _FORM.validate_python(data)
    except ValidationError as error:
        places = {".".join(map(str, problem["loc"])) for problem in error.errors()}
        raise _refused(*places - {""}) from None
    for place, address in (("source", told.source), ("command", told.command.address)):
        try:
            check_address(address)
        except (InvalidDomainName, InvalidRoot):
            raise _refused(place) from None
    return told


def _refused(*places: str) -> DecodeError:
    """The error that names *places*, and none of their values."""
    named = ", ".join(sorted(places)) or "its data"
    return DecodeError(f"the event is not a notification of a rejection: {named} does not fit")


def written_rejection(rejection: Rejection) -> dict[str, Any]:
    """*rejection* as JSON, to be kept: the message that notifies its source."""
    event = to_event(rejection)
    written = {"headers": to_headers(event), "data": event.data}
    return written if rejection.sealed is None else {**written, "sealed": [*rejection.sealed]}


def read_rejection(written: Any) -> Rejection:
    """The rejection in the output of `written_rejection`; else raises DecodeError."""
    match written:
        case {"headers": Mapping() as headers, "data": data}:
            told = from_event(from_headers(headers, data=data, event_id="", type=NOTIFICATION))
            return replace(told, sealed=_sealed_in(written))
    raise DecodeError("the stored rejection is not a notification")


def _sealed_in(written: Mapping[str, Any]) -> SealedOrigin | None:
    match written.get("sealed"):
        case None:
            return None
        case [str() as key, str() | None as tenant]:
            return SealedOrigin(key, tenant)
    raise DecodeError("the stored rejection does not say which key sealed its command")


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
        """The rejected command's data as a type; raises DecodeError."""
        return decoder_for(declared)(self.command.data)

    @classmethod
    def of(cls, rejection: Rejection) -> CompensationContext:
        """The context of a rejection that arrived here."""
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
        """The context, or None for a command that no saga sent; raises DecodeError."""
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
        """The context of a RejectionNotification; raises DecodeError for any other."""
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
        """The context of the older form; raises DecodeError."""
        return cls.from_rejected_command(
            command.rejected_command, command.rejection_reason, saga=command.saga_name
        )


def _saga(metadata: Mapping[str, str]) -> str:
    return metadata.get(SAGA_NAME, "")
