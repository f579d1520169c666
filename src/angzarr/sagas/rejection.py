"""Rejection: a command that its target refused, on its way back to whoever caused it (spec C4)."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any, Final

from pydantic import AwareDatetime, TypeAdapter, ValidationError

from angzarr.aggregates.book import Address
from angzarr.aggregates.command import Command, Origin, id_after
from angzarr.errors import DecodeError
from angzarr.events.event import Event

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
    depth: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """A rejection as it travels."""

    saga_name: str
    source: Address
    source_sequence: int
    rejection_reason: str
    rejected_at: AwareDatetime
    command: Target


_FORM: Final = TypeAdapter(_Written)


def target_of(command: Command) -> Target:
    """Return what travels of a rejected command."""
    said = {field.name: getattr(command.event, field.name) for field in fields(Target)}
    return Target(**said)


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
            "command": asdict(target_of(rejection.command)),
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
    try:
        told = _FORM.validate_python(event.data)
    except ValidationError as error:
        places = {".".join(map(str, problem["loc"])) for problem in error.errors()}
        named = ", ".join(sorted(places - {""})) or "its data"
        msg = f"it is no notification of a rejection: {named} does not fit"
        raise DecodeError(msg) from None
    command = Event(
        **asdict(told.command),
        correlation_id=event.correlation_id,
        tenant_id=event.tenant_id,
        priority=event.priority,
        config_pins=event.config_pins,
    )
    return Rejection(
        id=event.id,
        command=Command(event=command),
        origin=Origin(saga=told.saga_name, source=told.source, sequence=told.source_sequence),
        reason=told.rejection_reason,
        rejected_at=told.rejected_at,
    )
