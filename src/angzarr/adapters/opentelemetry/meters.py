"""Counters and histograms of settled deliveries (spec O1), and the names of attributes and labels.

Counters are named without ``_total`` and instruments carry no unit: Prometheus exporters add both
to the name themselves, and the names of O1 are those that Prometheus must see.

Span attributes follow the messaging semantic conventions (1.43). They are written out here because
the conventions' package marks them as incubating and moves them; docs/reference/metrics.md lists
them. The SDK bounds how many values a label has.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import Final

from opentelemetry.metrics import Meter

from angzarr.dead_letters.letter import Reason
from angzarr.delivery.delivery import DeadLettered, Delivery, Handled, Outcome, Retried
from angzarr.resilience.taxonomy import Category

_LONGEST: Final = 200


def label(text: str) -> str:
    """Return *text* as a label's value, cut: whoever publishes may have chosen it.

    Halves of characters are marked: no exporter can write them.
    """
    return text[:_LONGEST].encode("utf-8", "replace").decode()


#: Why an event may be dead-lettered by its handler's own doing; else no run failed.
_RAN: Final = frozenset({Reason.REFUSED, Reason.EXHAUSTED, Reason.OUT_OF_TIME, Reason.POISON})

_MS: Final = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000, 300_000)
_SECONDS: Final = (0.1, 0.5, 1, 5, 15, 30, 60, 300, 900, 3600, 14_400, 43_200, 86_400)
_ATTEMPTS: Final = (1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 50)


class Meters:
    """The instruments, each counted in one place."""

    def __init__(self, meter: Meter) -> None:
        count, measure = meter.create_counter, meter.create_histogram
        self.errors = count("errors", description="Failed deliveries")
        self.errors_by_type = count("errors_by_type", description="Failures by category")
        self.errors_by_tool = count("errors_by_tool", description="Failures by handler")
        self.retries = count("retries", description="Retries scheduled")
        self.retries_successful = count(
            "retries_successful", description="Events handled after at least one retry"
        )
        self.retries_exhausted = count(
            "retries_exhausted", description="Events dead-lettered after at least one retry"
        )
        self.success = count("event_handler_success", description="Handler runs that finished")
        self.failure = count("event_handler_failure", description="Handler runs that failed")
        self.retry = count("event_handler_retry", description="Handler runs to be repeated")
        self.dlq = count("event_handler_dlq", description="Events sent to a dead-letter queue")
        self.duration = measure(
            "event_handler_duration_ms",
            description="How long handlers ran, in milliseconds",
            explicit_bucket_boundaries_advisory=_MS,
        )
        self.retry_attempts = measure(
            "retry_attempts",
            description="Runs of events that were retried, counted at their end",
            explicit_bucket_boundaries_advisory=_ATTEMPTS,
        )
        self.retry_duration = measure(
            "retry_duration_seconds",
            description="From the first attempt to the end of events that were retried",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._begin()

    def _begin(self) -> None:
        """Let each count without labels begin at 0: its first step would be no increase else."""
        for counter in (
            self.errors, self.retries, self.retries_successful, self.retries_exhausted,
            self.success, self.retry, self.dlq,
        ):  # fmt: skip
            with suppress(Exception):  # what is broken is told of when it counts
                counter.add(0)

    def ran(self, delivery: Delivery, milliseconds: float) -> None:
        """Record how long a handler ran, however it ended."""
        self.duration.record(
            milliseconds,
            {"event_type": label(delivery.event.type), "handler": label(delivery.handler)},
        )

    def settled(self, delivery: Delivery, outcome: Outcome, now: datetime) -> None:
        """Count a settled delivery; duplicates, skips and postponements are facts, not counts."""
        match outcome:
            case Handled():
                self.success.add(1)
                if delivery.attempt > 1:
                    self.retries_successful.add(1)
                    self._retried(delivery, delivery.attempt, now)
            case Retried(seen=seen):
                self._failed(delivery, seen.category, ran=True)
                self.retries.add(1)
                self.retry.add(1)
            case DeadLettered(letter=letter):
                self._failed(delivery, letter.category, ran=letter.reason in _RAN)
                self.dlq.add(1)
                if letter.attempts > 1:
                    self.retries_exhausted.add(1)
                    self._retried(delivery, letter.attempts, now)

    def _failed(self, delivery: Delivery, category: Category | str, *, ran: bool) -> None:
        kind = str(category)
        self.errors.add(1)
        self.errors_by_type.add(1, {"type": kind})
        self.errors_by_tool.add(1, {"tool_id": label(delivery.handler)})
        if ran:
            self.failure.add(1, {"error_type": kind})

    def _retried(self, delivery: Delivery, attempts: int, now: datetime) -> None:
        self.retry_attempts.record(attempts)
        if delivery.first_attempt_at is not None:
            took = (now - delivery.first_attempt_at).total_seconds()
            self.retry_duration.record(max(took, 0.0))  # the clocks of two hosts differ


SYSTEM: Final = "messaging.system"
DESTINATION: Final = "messaging.destination.name"
MESSAGE_ID: Final = "messaging.message.id"
CONVERSATION_ID: Final = "messaging.message.conversation_id"
OPERATION_NAME: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
ERROR_TYPE: Final = "error.type"

EVENT_ID: Final = "angzarr.event.id"
EVENT_TYPE: Final = "angzarr.event.type"
DOMAIN: Final = "angzarr.domain"
HANDLER: Final = "angzarr.handler"
ATTEMPT: Final = "angzarr.attempt"
REPLAY: Final = "angzarr.replay"
OUTCOME: Final = "angzarr.outcome"
ERROR_CATEGORY: Final = "angzarr.error.category"
ERROR_CODE: Final = "angzarr.error.code"
LETTER_ID: Final = "angzarr.letter.id"
REASON: Final = "angzarr.reason"
DELAY: Final = "angzarr.delay_ms"

#: kombu's names of brokers → the conventions' names.
SYSTEMS: Final = {"amqp": "rabbitmq", "pyamqp": "rabbitmq", "sqs": "aws_sqs"}
