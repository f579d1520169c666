"""Rejection: a command that its target refused, on its way back to whoever caused it (spec C4)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime
from typing import Annotated, Any, Final

from pydantic import AwareDatetime, Field, TypeAdapter, ValidationError

from angzarr.aggregates.book import MAX_KEY_LENGTH, Address, check_address
from angzarr.aggregates.command import Command, Origin, id_after
from angzarr.errors import DecodeError, InvalidDomainName, InvalidRoot
from angzarr.events.event import Event
from angzarr.events.headers import MAX_NUMBER

#: The type of the message that carries it.
NOTIFICATION: Final = "angzarr.Notification"


def notification_task(domain: str) -> str:
    """Return the task that tells the aggregates of *domain* of rejections."""
    return f"notification.{domain}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """What the source of a rejected command is told.

    The same command has the same rejection: `id` follows from it.
    """

    id: str
    command: Command
    origin: Origin
    reason: str
    rejected_at: datetime

    @property
    def correlation_id(self) -> str | None:
        """That of the whole chain."""
        return self.command.event.correlation_id


def rejection_of(command: Command, origin: Origin, reason: str, now: datetime) -> Rejection:
    """Return the rejection of *command*, which came from *origin*."""
    made = id_after(command.id, "rejected")
    return Rejection(id=made, command=command, origin=origin, reason=reason, rejected_at=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The rejected command as it travels; its flow is that of the message."""

    id: str
    type: str
    domain: str
    root: str
    edition: str | None = None
    data: Any = None

    @property
    def address(self) -> Address:
        """The aggregate that refused it."""
        return Address(self.domain, self.root, self.edition or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """A rejection as it travels."""

    saga_name: str
    source: Address
    source_sequence: Annotated[int, Field(ge=0, le=MAX_NUMBER)]
    rejection_reason: str
    rejected_at: AwareDatetime
    command: Target


_FORM: Final = TypeAdapter(_Written)


def target_of(command: Command) -> dict[str, Any]:
    """Return what travels of a rejected command: the fields of a `Target`."""
    return _fields(command.event)


def _fields(carried: Event | Target) -> dict[str, Any]:
    """Return what both have; not a copy of the data, which may be nested deeply."""
    return {field.name: getattr(carried, field.name) for field in fields(Target)}


def to_event(rejection: Rejection) -> Event:
    """Return the event that carries *rejection* to its source."""
    command, origin = rejection.command.event, rejection.origin
    return Event(
        id=rejection.id,
        type=NOTIFICATION,
        data={
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
    if not event.id.isprintable() or not 0 < len(event.id) <= MAX_KEY_LENGTH:
        raise _refused("its id")
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
        id=event.id,
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
    """Return the error that names *places*, and none of their values."""
    named = ", ".join(sorted(places)) or "its data"
    return DecodeError(f"it is no notification of a rejection: {named} does not fit")
