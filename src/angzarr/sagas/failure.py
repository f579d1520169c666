"""SagaCompensationFailed: the event by which all others hear that nothing was undone (spec C5)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Final

from angzarr.aggregates.book import Address
from angzarr.aggregates.command import id_after
from angzarr.aggregates.wire_form import command_to_wire, cover_of
from angzarr.events.event import Event
from angzarr.sagas.rejection import Rejection, Target, target_of
from angzarr.wire import rejection_pb2

EVENT_TYPE: Final = "angzarr.SagaCompensationFailed"
#: The handler that ships: it counts and says it.
HANDLER: Final = "angzarr.saga_failures"


@dataclass(frozen=True, slots=True, kw_only=True)
class SagaCompensationFailed:
    """What a handler of it is given."""

    __event_type__: ClassVar[str] = EVENT_TYPE

    triggering_aggregate: Address
    triggering_event_sequence: int
    saga_name: str
    rejection_reason: str
    compensation_failure_reason: str
    rejected_command: Target
    occurred_at: datetime


def failure_id(rejection_id: str, reason: str) -> str:
    """Return the id of the event by which it is told that nothing was undone, for *reason*."""
    return id_after(rejection_id, "compensation failed", reason)


def failure_event(rejection: Rejection, reason: str, domain: str, now: datetime) -> Event:
    """Return the event for *domain*; the same rejection and reason have the same."""
    cause, origin = rejection.command.event, rejection.origin
    data: dict[str, Any] = {
        "triggering_aggregate": origin.source._asdict(),
        "triggering_event_sequence": origin.sequence,
        "saga_name": origin.saga,
        "rejection_reason": rejection.reason,
        "compensation_failure_reason": reason,
        "rejected_command": target_of(rejection.command),
        "occurred_at": now.isoformat(),
    }
    return Event(
        id=failure_id(rejection.id, reason),
        type=EVENT_TYPE,
        data=data,
        domain=domain,
        root=origin.source.root,
        edition=origin.source.edition or None,
        correlation_id=rejection.correlation_id,
        causation_id=rejection.id,
        tenant_id=cause.tenant_id,
        config_pins=cause.config_pins,
        occurred_at=now,
        traceparent=cause.traceparent,
        depth=cause.depth + 2,
    )


def failure_to_wire(
    rejection: Rejection, reason: str, now: datetime
) -> rejection_pb2.SagaCompensationFailed:
    """Return the same as the message that other languages read; raises UnserializableEvent."""
    written = rejection_pb2.SagaCompensationFailed(
        triggering_aggregate=cover_of(rejection.origin.source, rejection.correlation_id),
        triggering_event_sequence=rejection.origin.sequence,
        saga_name=rejection.origin.saga,
        rejection_reason=rejection.reason,
        compensation_failure_reason=reason,
        rejected_command=command_to_wire(rejection.command),
    )
    written.occurred_at.FromDatetime(now)
    return written
