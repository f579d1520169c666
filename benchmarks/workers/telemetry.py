"""Full telemetry: OpenTelemetry's SDK in each child, which writes spans and metrics to files."""

from __future__ import annotations

import os
from typing import Any

from celery import signals
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

from workers.environment import FOLDER

#: Between two exports of metrics (ms).
EVERY = 1000.0


@signals.worker_process_init.connect(weak=False)
def begin(**_signal: Any) -> None:
    """Set the SDK up; a thread of it does not survive a fork, so each child has its own."""
    spans, meters = (
        (FOLDER / f"{kind}-{os.getpid()}").open("w", encoding="utf-8")
        for kind in ("spans", "metrics")
    )
    tracing = TracerProvider()
    exporter = ConsoleSpanExporter(out=spans, formatter=lambda one: f"{one.to_json(indent=None)}\n")
    tracing.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(tracing)
    reader = PeriodicExportingMetricReader(
        ConsoleMetricExporter(out=meters), export_interval_millis=EVERY
    )
    measuring = MeterProvider([reader])
    metrics.set_meter_provider(measuring)

    @signals.worker_process_shutdown.connect(weak=False)
    def end(**_signal: Any) -> None:
        tracing.shutdown()
        measuring.shutdown()
