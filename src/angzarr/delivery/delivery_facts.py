"""The facts of a settled delivery, of its steps and of poison waves (spec F1). Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from angzarr.dead_letters.letter import DeadLetter, Reason
from angzarr.dead_letters.metadata import trace_id
from angzarr.delivery.delivery import (
    WORDS,
    DeadLettered,
    Delivery,
    Duplicate,
    Handled,
    Outcome,
    Parked,
    Postponed,
    Retried,
    Skipped,
)
from angzarr.errors import text_of
from angzarr.events import headers as names
from angzarr.events.event import Event
from angzarr.facts.fact import Fact
from angzarr.facts.resolution import letter_fact_id
from angzarr.ordering.lane import StepEnd
from angzarr.resilience.category import Category
from angzarr.resilience.taxonomy import Classification

_FAILED = (Retried, DeadLettered)
_RESOLVING = (Handled, Skipped)
#: The outcomes of a delivery that had its turn.
_RAN = (Handled, Skipped, Retried, DeadLettered)

#: Codes of errors by which a dependency says that it was asked too often.
_RATE_LIMITS: Final = frozenset({
    "HTTP_429", "GRPC_RESOURCE_EXHAUSTED", "POOL_EXHAUSTED", "THROTTLING_QUOTA_EXCEEDED",
    "Throttling", "ThrottlingException", "ThrottledException", "RequestThrottledException",
    "RequestThrottled", "TooManyRequestsException", "ProvisionedThroughputExceededException",
    "RequestLimitExceeded", "BandwidthLimitExceeded", "LimitExceededException", "SlowDown",
    "EC2ThrottledException",
})  # fmt: skip
#: Codes of errors of which the only news is that time ran out.
_TIMEOUTS: Final = frozenset({
    "TIMEOUT", "TIME_LIMIT", "HTTP_408", "HTTP_504", "GRPC_DEADLINE_EXCEEDED", "ETIMEDOUT",
    "RequestTimeout", "RequestTimeoutException",
})  # fmt: skip
_BY_CATEGORY: Final = {
    Category.SERVER: "external",
    Category.EXTERNAL: "external",
    Category.CLIENT: "validation",
    Category.INTEGRITY: "validation",
}


def error_subtype(category: Category, code: str) -> str:
    """The kind of an error in facts: rate_limit, timeout, external, validation or tool_failure.

    `data` has the category itself, as `error_type`, and the code.
    """
    if code in _RATE_LIMITS:
        return "rate_limit"
    if code in _TIMEOUTS:
        return "timeout"
    return _BY_CATEGORY.get(category, "tool_failure")


def retry_fact_id(key: str, replay: int, attempt: int) -> str:
    """The id of the fact that this attempt of the event of claim *key* failed, and is repeated.

    It names no delivery: the same attempt, run again after a kill, is the same fact.
    """
    return f"{key}:{replay}.{attempt}:retried"


def resolved_by(delivery: Delivery) -> str | None:
    """The id of the error fact that a good end of *delivery* resolves; None: there was no error.

    That is the attempt before it, or else the letter that it was replayed from.
    """
    if delivery.attempt > 1:
        return retry_fact_id(delivery.key, delivery.position.replay, delivery.attempt - 1)
    return None if delivery.letter_id is None else letter_fact_id(delivery.letter_id)


def _id(delivery: Delivery, outcome: Outcome, word: str) -> str:
    match outcome:
        case Handled():  # nearly all are
            return f"{delivery.token}:{word}"
        case Retried():
            return retry_fact_id(delivery.key, delivery.position.replay, delivery.attempt)
        case DeadLettered(letter=letter):
            return letter_fact_id(letter.id)
        case _:
            return f"{delivery.token}:{word}"


def facts_of(delivery: Delivery, outcome: Outcome, at: datetime) -> list[Fact]:
    """The fact of *outcome*; before it, at a replay's first attempt, that of the replay.

    Where an earlier delivery ended untold these are its facts, by their ids too: should that have
    told them after all, they are kept once.
    """
    if isinstance(outcome, Duplicate) and outcome.untold is not None:
        end = outcome.untold
        delivery, outcome, at = replace(delivery, token=end.token), _told(end), end.at
    fact = fact_of(delivery, outcome, at)
    if delivery.letter_id is None or delivery.attempt > 1 or not isinstance(outcome, _RAN):
        return [fact]
    return [_replay_fact(delivery, delivery.letter_id, at), fact]


def _told(end: StepEnd) -> Outcome:
    return Handled() if end.skipped is None else Skipped(**end.skipped._asdict())


def fact_of(delivery: Delivery, outcome: Outcome, at: datetime) -> Fact:
    """The fact that *delivery* ended as *outcome*; its id is the same when repeated.

    An end that is good names the error that it resolved.
    """
    word = WORDS[type(outcome)]
    return Fact(
        id=_id(delivery, outcome, word),
        type="error" if isinstance(outcome, _FAILED) else "lifecycle",
        subtype=_subtype(outcome),
        at=at,
        tenant_id=delivery.event.tenant_id,
        entity_id=delivery.event.root,
        tool_id=delivery.handler,
        event_id=delivery.event.id,
        trace_id=trace_of(delivery.event),
        asset_id=delivery.asset_id,
        resolves=resolved_by(delivery) if isinstance(outcome, _RESOLVING) else None,
        **_pinned(delivery.event),
        data=_common(delivery, word) | _details(outcome),
    )


def _pinned(event: Event) -> dict[str, Any]:
    """The configuration that *event* is pinned to; of several only data tell (spec F1)."""
    pins = event.config_pins
    if len(pins) != 1:  # nearly all have none
        return {}
    ((config_id, version),) = pins.items()
    return {"config_id": config_id, "config_version": version}


def _replay_fact(delivery: Delivery, letter: str, at: datetime) -> Fact:
    """The fact that a dead letter was sent again and has come; one for each replay."""
    event, headers = delivery.event, delivery.message.headers
    queue = headers.get(names.QUEUE)
    return Fact(
        id=f"{letter}:dlq_retry:{delivery.position.replay}",
        type="lifecycle",
        subtype="dlq_retry",
        at=at,
        tenant_id=event.tenant_id,
        entity_id=event.root,
        tool_id=delivery.handler,
        event_id=event.id,
        trace_id=trace_of(event),
        data={
            "dlq_message_id": letter,
            "original_queue": queue if isinstance(queue, str) else delivery.message.queue,
            "reason": names.skip_of(headers) or f"replay {delivery.position.replay}",
            "by": names.replayed_by(headers),
            "message_id": delivery.message.id,
            "replay": delivery.position.replay,
        },
    )


def fenced_fact(delivery: Delivery, at: datetime) -> Fact:
    """The fact that a late owner found its event taken over and let go."""
    return Fact(
        id=f"{delivery.token}:fenced",
        type="lifecycle",
        subtype="fenced",
        at=at,
        tenant_id=delivery.event.tenant_id,
        entity_id=delivery.event.root,
        tool_id=delivery.handler,
        event_id=delivery.event.id,
        trace_id=trace_of(delivery.event),
        asset_id=delivery.asset_id,
        data=_common(delivery, "fenced"),
    )


def trace_of(event: Event) -> str | None:
    """The trace id of *event*, or None."""
    return (trace_id(event.traceparent) or None) if event.traceparent else None


def _common(delivery: Delivery, outcome: str) -> dict[str, Any]:
    event = delivery.event
    told: dict[str, Any] = {
        "outcome": outcome,
        "event_type": event.type,
        "message_id": delivery.message.id,
        "correlation_id": event.correlation_id,
        "retry_attempt": delivery.attempt,
        "replay": delivery.position.replay,
    }
    if event.config_pins:
        told["config_pins"] = dict(event.config_pins)
    return told


def step_fact(  # noqa: PLR0917 - the last three say what went wrong
    delivery: Delivery,
    step: str,
    at: datetime,
    error: Exception | None = None,
    seen: Classification | None = None,
    shown: str | None = None,
) -> Fact:
    """The fact that a finished step was undone, or that it was not because of *error*.

    *shown* is what may be shown of the error's text; None: all.
    """
    data = _common(delivery, "") | {"step": step}
    del data["outcome"]  # of the delivery it is none
    if error is not None and seen is not None:
        data["error_code"] = seen.code
        data["error_type"] = seen.category.value
        data["error_message"] = (text_of(error) if shown is None else shown)[:1000]
    subtype = "step_undone" if error is None else "step_not_undone"
    return Fact(
        id=f"{delivery.token}:{subtype}:{step}",
        type="lifecycle" if error is None else "error",
        subtype=subtype,
        at=at,
        tenant_id=delivery.event.tenant_id,
        entity_id=delivery.event.root,
        tool_id=delivery.handler,
        event_id=delivery.event.id,
        trace_id=trace_of(delivery.event),
        asset_id=delivery.asset_id,
        data=data,
    )


def wave_fact(letter: DeadLetter, at: datetime) -> Fact:
    """The fact that the domain of *letter*, which is not sent, is held back."""
    return Fact(
        id=f"{letter.id}:poison_wave:{at.isoformat()}",
        type="error",
        subtype="poison_wave",
        at=at,
        tool_id=letter.handler or None,
        event_id=letter.event.id if letter.event else None,
        data={"domain": letter.domain, **details_of(letter)},
    )


def details_of(letter: DeadLetter) -> dict[str, Any]:
    """What the fact of *letter* says of it."""
    return {
        "error_code": letter.error_code,
        "error_message": letter.error_message[:1000],
        "error_type": "terminal",
        "queue_name": letter.message.queue,
        "letter_id": letter.id,
        "reason": letter.reason.value,
        "category": letter.category,
        "max_retries": max(letter.attempts - 1, 0) if letter.reason is Reason.EXHAUSTED else None,
        "resolved": False,
    }


def _subtype(outcome: Outcome) -> str:
    match outcome:
        case Handled():  # nearly all are
            return "handled"
        case DeadLettered(letter=letter) if letter.reason is Reason.EXHAUSTED:
            return "max_retries_exceeded"
        case Retried(seen=seen):
            return error_subtype(seen.category, seen.code)
        case DeadLettered(letter=letter):
            return letter.reason.value
        case _:
            return WORDS[type(outcome)]


def _details(outcome: Outcome) -> dict[str, Any]:  # noqa: PLR0911 - one for each kind
    match outcome:
        case Handled():
            return {}
        case Retried(text=text, seen=seen, delay=delay, max_attempts=most):
            return {
                "error_code": seen.code,
                "error_message": text[:1000],
                "error_type": seen.category.value,
                "max_retries": most - 1 if most else None,
                "delay_ms": round(delay.total_seconds() * 1000),
                "resolved": False,
            }
        case DeadLettered(letter=letter):
            return details_of(letter)
        case Postponed(why=why, delay=delay):
            return {"reason": why, "delay_ms": round(delay.total_seconds() * 1000)}
        case Parked(turn=turn, next_sequence=place):
            return {"sequence": turn.step.sequence, "waits_for": place}
        case Skipped(reason=reason, switch=switch):
            return {"reason": reason} | ({"switch_id": switch} if switch else {})
        case _:
            return {}
