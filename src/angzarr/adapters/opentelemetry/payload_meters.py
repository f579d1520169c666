"""OpenTelemetry's instruments for bodies in payload stores (spec F4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

from angzarr.adapters.opentelemetry.meters import SCOPE
from angzarr.payloads.collector import PayloadCount, PayloadState


class PayloadMeters:
    """Counts what this process deletes; shows the bodies of each state, as seen last."""

    def __init__(self, provider: MeterProvider | None = None) -> None:
        self._seen: Mapping[PayloadState, PayloadCount] = {}
        meter = metrics.get_meter(SCOPE, meter_provider=provider)
        self._bodies = meter.create_counter(
            "payload_bodies_deleted", description="Bodies deleted that nothing needed"
        )
        self._bytes = meter.create_counter(
            "payload_bytes_deleted", description="Bytes of those bodies"
        )
        meter.create_observable_gauge(
            "payload_bodies",
            callbacks=[self._count],
            description="Registered bodies in payload stores",
        )
        meter.create_observable_gauge(
            "payload_bytes",
            callbacks=[self._size],
            description="Bytes of those bodies",
        )

    def deleted(self, count: PayloadCount) -> None:
        """Count bodies that were deleted."""
        self._bodies.add(count.bodies)
        self._bytes.add(count.bytes)

    def seen(self, counts: Mapping[PayloadState, PayloadCount]) -> None:
        """Show *counts* from now on."""
        self._seen = counts

    def _count(self, _options: CallbackOptions) -> Iterable[Observation]:
        for state, count in self._seen.items():
            yield Observation(count.bodies, {"state": state.value})

    def _size(self, _options: CallbackOptions) -> Iterable[Observation]:
        for state, count in self._seen.items():
            yield Observation(count.bytes, {"state": state.value})
