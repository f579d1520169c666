"""Metric of a worker's clock: how far it is ahead of its claim store's."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

from angzarr.adapters.opentelemetry.propagation import SCOPE


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
