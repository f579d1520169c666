"""Metrics of settled deliveries, breakers, the clock, ordered handlers and sagas (O1, O2, P2, P3).

Counters are named without ``_total`` and instruments carry no unit: Prometheus exporters add both
to the name themselves, and the names of O1 are those that Prometheus must see. The SDK bounds how
many values a label has.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final, Protocol

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation

from angzarr.dead_letters.letter import Reason
from angzarr.delivery.delivery import DeadLettered, Delivery, Handled, Outcome, Retried
from angzarr.ordering.lane_view import OrderingSample
from angzarr.resilience.breaker import BreakerRefusal, Breakers, Phase, Transition
from angzarr.resilience.taxonomy import Category
from angzarr.sagas.log import RejectionStatus

SCOPE: Final = "angzarr"
_LONGEST: Final = 200


def label(text: str) -> str:
    """*text* as a label's value, cut: its publisher may have chosen it.

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
            with suppress(Exception):  # a broken instrument is reported when it counts
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


_NUMBERS: Final = {Phase.CLOSED: 0, Phase.OPEN: 1, Phase.HALF_OPEN: 2, Phase.ISOLATED: 3}


class BreakerMeters:
    """Fulfils `BreakerWatch`: an opening is counted by the one process that caused it.

    Each process tells the state of the breakers that it uses, as it last heard of it.
    """

    def __init__(self, provider: MeterProvider | None = None) -> None:
        self._meter = metrics.get_meter(SCOPE, meter_provider=provider)
        self._opens = self._meter.create_counter(
            "circuit_breaker_opens", description="Times that a breaker opened"
        )

    def changed(self, transition: Transition, /) -> None:
        """Count an opening."""
        if transition.after is Phase.OPEN:
            self._opens.add(1, {"service": transition.name})

    def refused(self, refusal: BreakerRefusal, /) -> None:
        """Do nothing: its fact and the line of the postponed delivery report a refusal."""

    def observe(self, breakers: Breakers) -> None:
        """Report the states of *breakers* from now on, while anything references them."""
        self._meter.create_observable_gauge(
            "circuit_breaker_state",
            callbacks=[_phases(weakref.ref(breakers))],
            description="0 closed, 1 open, 2 half-open, 3 isolated",
        )


def _phases(
    held: Callable[[], Breakers | None],
) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(_options: CallbackOptions) -> Iterable[Observation]:
        breakers = held()
        phases = {} if breakers is None else breakers.phases()
        return [Observation(_NUMBERS[phase], {"service": name}) for name, phase in phases.items()]

    return observe


class ClockMeters:
    """Tells of one worker, from its parent process."""

    def __init__(self, provider: MeterProvider | None = None) -> None:
        self._meter = metrics.get_meter(SCOPE, meter_provider=provider)

    def observe(self, ahead: Callable[[], timedelta | None]) -> None:
        """Report *ahead* from now on; nothing while it is None."""

        def observe(_options: CallbackOptions) -> Iterable[Observation]:
            span = ahead()
            return [] if span is None else [Observation(span.total_seconds())]

        self._meter.create_observable_gauge(
            "clock_ahead_seconds",
            callbacks=[observe],
            description="How far this machine's clock is ahead of the claim store's",
        )


class BlockedLoop(Protocol):
    """What is known of an event loop that handlers may block."""

    times: int

    def longest(self) -> float:
        """The seconds of the longest time that it was blocked."""


class LoopMeters:
    """Tells of the event loop of one process."""

    def __init__(self, provider: MeterProvider | None = None) -> None:
        self._meter = metrics.get_meter(SCOPE, meter_provider=provider)

    def observe(self, loop: BlockedLoop) -> None:
        """Report on *loop* from now on."""
        self._meter.create_observable_counter(
            "loop_blocked",
            callbacks=[lambda _options: [Observation(loop.times)]],
            description="Times that a handler blocked the event loop of its process",
        )
        self._meter.create_observable_gauge(
            "loop_blocked_longest_seconds",
            callbacks=[lambda _options: [Observation(loop.longest())]],
            description="The longest time that a handler has blocked the event loop",
        )


_LAG_SECONDS: Final = (0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 900, 3600, 14_400, 86_400, 604_800)


class OrderingMeters:
    """Measures by handler, which has its task name; shows samples as it last heard of them."""

    def __init__(self, provider: MeterProvider | None = None) -> None:
        self._samples: Sequence[OrderingSample] = ()
        self._meter = metrics.get_meter(SCOPE, meter_provider=provider)
        self._lag = self._meter.create_histogram(
            "projection_lag_seconds",
            description="From when an event occurred to when an ordered handler had handled it",
            explicit_bucket_boundaries_advisory=_LAG_SECONDS,
        )
        self._gauge(
            "projection_events_behind",
            lambda one: one.events_behind,
            "Events that an ordered handler has not passed",
        )
        self._gauge(
            "projection_parked_events",
            lambda one: one.parked,
            "Events that are parked behind others of their aggregate",
        )
        self._gauge(
            "projection_blocked_lanes",
            lambda one: one.blocked,
            "Aggregates that a dead letter holds up",
        )
        self._gauge(
            "projection_gaps",
            lambda one: one.gaps,
            "Aggregates whose next event is not known while later ones wait",
        )

    def handled(self, handler: str, behind: timedelta) -> None:
        """Record how long before now an event occurred that *handler* has just handled."""
        seconds = max(behind.total_seconds(), 0.0)  # the clocks of two hosts differ
        self._lag.record(seconds, {"projection": handler})

    def show(self, samples: Sequence[OrderingSample]) -> None:
        """Show *samples*, one a handler, until the next ones."""
        self._samples = tuple(samples)

    def _gauge(self, name: str, value: Callable[[OrderingSample], int | None], about: str) -> None:
        def observe(_options: CallbackOptions) -> Iterable[Observation]:
            return [
                Observation(seen, {"projection": one.handler})
                for one in self._samples
                if (seen := value(one)) is not None
            ]

        self._meter.create_observable_gauge(name, callbacks=[observe], description=about)


_COMPENSATION_SECONDS: Final = (0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 14_400, 86_400)


class SagaMeters:
    """Counts, by saga."""

    def __init__(self, provider: MeterProvider | None = None) -> None:
        meter = metrics.get_meter(SCOPE, meter_provider=provider)
        self._rejected = meter.create_counter(
            "saga_commands_rejected", description="Commands of sagas that aggregates rejected"
        )
        self._handled = meter.create_counter(
            "saga_compensations_handled",
            description="Rejected commands whose source answered, by how it ended",
        )
        self._failed = meter.create_counter(
            "saga_compensations_failed",
            description="Rejected commands whose source failed or answered nothing",
        )
        self._gave_up = meter.create_counter(
            "saga_compensation_failed_events",
            description="SagaCompensationFailed events: what a saga set off was not undone",
        )
        self._latency = meter.create_histogram(
            "saga_compensation_latency_seconds",
            description="From the rejection of a command to the end of its compensation",
            explicit_bucket_boundaries_advisory=_COMPENSATION_SECONDS,
        )

    def rejected(self, saga: str, domain: str) -> None:
        """Count a rejected command."""
        self._rejected.add(1, {"saga": label(saga), "domain": label(domain)})

    def ended(self, saga: str, status: RejectionStatus, seconds: float) -> None:
        """Count a compensation that ended."""
        if status is RejectionStatus.FAILED:
            self._failed.add(1, {"saga": label(saga)})
        else:
            self._handled.add(1, {"saga": label(saga), "result": status.value})
        self._latency.record(seconds, {"saga": label(saga)})

    def gave_up(self, saga: str) -> None:
        """Count a `SagaCompensationFailed`."""
        self._gave_up.add(1, {"saga": label(saga)})
