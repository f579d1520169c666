"""Metrics of a worker's breakers, clock, ordered handlers and sagas (specs O1, O2, P2, P3)."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Final

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

from angzarr.adapters.opentelemetry.meters import label
from angzarr.adapters.opentelemetry.propagation import SCOPE
from angzarr.ordering.lane_view import OrderingSample
from angzarr.resilience.breaker import BreakerRefusal, Breakers, Phase, Transition
from angzarr.sagas.log import RejectionStatus

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
        """Do nothing: a refusal is told by its fact and by the postponed delivery's line."""

    def observe(self, breakers: Breakers) -> None:
        """Tell the states of *breakers* from now on, for as long as somebody holds them."""
        self._meter.create_observable_gauge(
            "circuit_breaker_state",
            callbacks=[_callback(weakref.ref(breakers))],
            description="0 closed, 1 open, 2 half-open, 3 isolated",
        )


def _callback(
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
        """Tell from now on what *ahead* returns; nothing while it is None."""

        def observe(_options: CallbackOptions) -> Iterable[Observation]:
            span = ahead()
            return [] if span is None else [Observation(span.total_seconds())]

        self._meter.create_observable_gauge(
            "clock_ahead_seconds",
            callbacks=[observe],
            description="How far this machine's clock is ahead of the claim store's",
        )


_SECONDS: Final = (0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 900, 3600, 14_400, 86_400, 604_800)


class OrderingMeters:
    """Measures by handler, which has its task name; shows samples as it last heard of them."""

    def __init__(self, provider: MeterProvider | None = None) -> None:
        self._samples: Sequence[OrderingSample] = ()
        self._meter = metrics.get_meter(SCOPE, meter_provider=provider)
        self._lag = self._meter.create_histogram(
            "projection_lag_seconds",
            description="From when an event occurred to when an ordered handler had handled it",
            explicit_bucket_boundaries_advisory=_SECONDS,
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
            "Aggregates whose next event nobody knows of while later ones wait",
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
            description="SagaCompensationFailed events: nobody undid what a saga set off",
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
