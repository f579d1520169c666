"""Escalation: a person hears that a saga's step could not be undone (spec C5, C7).

It is an event of its own, so that a webhook that is down is tried again and never forgotten.
SagaCompensationFailed is the event by which everybody else hears of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, ClassVar, Final, TypeAlias

from angzarr.aggregates.book import Address
from angzarr.aggregates.command import id_after
from angzarr.aggregates.wire_form import command_to_wire, cover_of
from angzarr.errors import WebhookError
from angzarr.events.event import Event
from angzarr.sagas.rejection import Rejection, RejectionTarget, target_of
from angzarr.webhooks import PostResult
from angzarr.wire import rejection_pb2

#: The handler that posts escalations, and the breaker in front of their receiver.
HANDLER: Final = "angzarr.escalation"
BREAKER: Final = "saga-escalation"

#: Characters of a reason and of a name, in what leaves the process.
LONGEST_REASON: Final = 2000
LONGEST_NAME: Final = 200
#: Answers by which a receiver asks for the same again, though they are refusals by number:
#: request time-out and too early (RFC 9110, 15.5.9; RFC 8470, 5.2).
_AGAIN: Final = frozenset({408, 425})

#: Sends a body under an id, once.
Post: TypeAlias = Callable[[str, bytes], PostResult]


@dataclass(frozen=True, slots=True, kw_only=True)
class Escalation:
    """A notice to people. The same `id` means the same escalation in every field."""

    __event_type__: ClassVar[str] = "angzarr.Escalation"

    #: Up to 200 ASCII characters without spaces: a receiver knows what comes twice by it.
    id: str
    saga_name: str
    #: The aggregate whose event the saga answered, and that event's sequence.
    domain: str
    root: str
    triggering_sequence: int
    rejection_reason: str
    #: Why it was not compensated.
    compensation_reason: str
    #: UTC-aware.
    occurred_at: datetime
    correlation_id: str = ""

    def __post_init__(self) -> None:
        if not (0 < len(self.id) <= LONGEST_NAME and self.id.isascii() and self.id.isprintable()):
            msg = f"an escalation's id has 1 to {LONGEST_NAME} ASCII characters"
            raise ValueError(msg)
        if " " in self.id:
            raise ValueError("an escalation's id has no spaces")
        if self.occurred_at.utcoffset() is None:
            raise ValueError("occurred_at must be UTC-aware")


def escalation_id(rejection_id: str, reason: str) -> str:
    """The id of the escalation of a rejection that was not undone, for *reason*."""
    return id_after(rejection_id, "escalated", reason)


def escalation_of(rejection: Rejection, reason: str) -> Escalation:
    """The escalation of *rejection*, which was not undone for *reason*.

    The same two have the same escalation, however often it is made.
    """
    origin = rejection.origin
    return Escalation(
        id=escalation_id(rejection.id, reason),
        saga_name=origin.saga,
        domain=origin.source.domain,
        root=origin.source.root,
        triggering_sequence=origin.sequence,
        rejection_reason=rejection.reason,
        compensation_reason=reason,
        occurred_at=rejection.rejected_at,
        correlation_id=rejection.correlation_id or "",
    )


def shortened(escalation: Escalation) -> Escalation:
    """*escalation* with its texts cut to what may leave the process."""
    return replace(
        escalation,
        saga_name=cut(escalation.saga_name, LONGEST_NAME),
        domain=cut(escalation.domain, LONGEST_NAME),
        root=cut(escalation.root, LONGEST_NAME),
        correlation_id=cut(escalation.correlation_id, LONGEST_NAME),
        rejection_reason=cut(escalation.rejection_reason, LONGEST_REASON),
        compensation_reason=cut(escalation.compensation_reason, LONGEST_REASON),
    )


def webhook_json(escalation: Escalation) -> dict[str, Any]:
    """The body of the webhook (spec C7); names do not change."""
    said = shortened(escalation)
    return {
        "saga_name": said.saga_name,
        "triggering_aggregate": {"domain": said.domain, "root": said.root},
        "triggering_sequence": said.triggering_sequence,
        "triggering_event_sequence": said.triggering_sequence,
        "rejection_reason": said.rejection_reason,
        "compensation_reason": said.compensation_reason,
        "occurred_at": said.occurred_at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
    }


def webhook_body(escalation: Escalation) -> bytes:
    """The same as bytes: the same escalation makes the same ones, however often."""
    said = webhook_json(escalation)
    return json.dumps(said, ensure_ascii=True, separators=(",", ":")).encode()


def deliver(escalation: Escalation, post: Post) -> None:
    """Post *escalation* once; raises WebhookError if it did not arrive.

    An ill receiver is to be tried again, one that refuses is not.
    """
    answer = post(escalation.id, webhook_body(escalation))
    if answer.arrived:
        return
    ill = answer.ill or answer.status in _AGAIN
    what = f"the webhook of escalations did not take it: {answer.problem}"
    if not ill:
        what += "; fix it or set saga_compensation.escalation_webhook_url, then replay this letter"
    raise WebhookError(what, ill, answer.status, answer.retry_after)


def cut(text: str, longest: int) -> str:
    """*text* in *longest* characters at most; one that was cut shows it."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


EVENT_TYPE: Final = "angzarr.SagaCompensationFailed"
#: The handler that ships: it counts and says it.
FAILURE_HANDLER: Final = "angzarr.saga_failures"


@dataclass(frozen=True, slots=True, kw_only=True)
class SagaCompensationFailed:
    """The event of a failed compensation, as its handlers get it."""

    __event_type__: ClassVar[str] = EVENT_TYPE

    triggering_aggregate: Address
    triggering_event_sequence: int
    saga_name: str
    rejection_reason: str
    compensation_failure_reason: str
    rejected_command: RejectionTarget
    occurred_at: datetime


def failure_id(rejection_id: str, reason: str) -> str:
    """The id of the event that says that nothing was undone, for *reason*."""
    return id_after(rejection_id, "compensation failed", reason)


def failure_event(rejection: Rejection, reason: str, domain: str, now: datetime) -> Event:
    """The event for *domain*; the same rejection and reason have the same."""
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
    """The same as the message that other languages read; raises UnserializableEvent."""
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
