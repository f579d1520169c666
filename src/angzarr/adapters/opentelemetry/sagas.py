"""Metrics of sagas (spec O2): rejected commands, and what became of them."""

from __future__ import annotations

from typing import Final

from opentelemetry import metrics
from opentelemetry.metrics import MeterProvider

from angzarr.adapters.opentelemetry.labels import label
from angzarr.adapters.opentelemetry.propagation import SCOPE
from angzarr.sagas.log import RejectionStatus

_SECONDS: Final = (0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 14_400, 86_400)


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
            explicit_bucket_boundaries_advisory=_SECONDS,
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
