"""Metrics of alerts (spec A5), and of the open entries that they are about."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

from angzarr.adapters.opentelemetry.propagation import SCOPE
from angzarr.analysis.alerts.alert import Alert
from angzarr.analysis.alerts.alert_raiser import Depth
from angzarr.clock import Clock, SystemClock


class AlertMeters:
    """Counts alerts and their deliveries, by whoever did it; shows depths as it last heard."""

    def __init__(self, provider: MeterProvider | None = None, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._depth: Depth | None = None
        meter = metrics.get_meter(SCOPE, meter_provider=provider)
        self._raised = meter.create_counter("dlq_alerts", description="Alerts that were raised")
        self._tried = meter.create_counter(
            "dlq_alert_deliveries", description="Tries to deliver an alert to a sink"
        )
        meter.create_observable_gauge(
            "dlq_open_entries",
            callbacks=[self._callback(_entries)],
            description="Entries of the ledger that nobody is done with",
        )
        meter.create_observable_gauge(
            "dlq_oldest_open_age_seconds",
            callbacks=[self._callback(_age)],
            description="How long ago the oldest open entry failed first",
        )

    def raised(self, alert: Alert) -> None:
        """Count an alert; the end of a cause is none."""
        if not alert.resolved:
            self._raised.add(1, {"kind": alert.kind.value, "severity": alert.severity.value})

    def tried(self, sink: str, outcome: str) -> None:
        """Count a try."""
        self._tried.add(1, {"sink": sink, "outcome": outcome})

    def show(self, depth: Depth) -> None:
        """Show *depth* until the next one."""
        self._depth = depth

    def _callback(
        self, values: Callable[[Depth, datetime], list[Observation]]
    ) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(_options: CallbackOptions) -> Iterable[Observation]:
            return [] if self._depth is None else values(self._depth, self._clock.now())

        return observe


def _entries(depth: Depth, _now: datetime) -> list[Observation]:
    return [
        Observation(count, {"domain": domain, "class": kind or "unclassified"})
        for (domain, kind), count in depth.open_entries.items()
    ]


def _age(depth: Depth, now: datetime) -> list[Observation]:
    age = max((now - depth.oldest_at).total_seconds(), 0.0) if depth.oldest_at else 0.0
    return [Observation(age)]
