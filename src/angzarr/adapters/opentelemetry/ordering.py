"""Metrics of ordered handlers (spec P2, P3): how late events are handled, and what waits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Final

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

from angzarr.adapters.opentelemetry.propagation import SCOPE
from angzarr.ordering.lane_view import OrderingSample

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
