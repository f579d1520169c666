"""An SDK of each test's own, without touching the process's providers."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from angzarr.adapters.opentelemetry.hook import OpenTelemetryHook


@pytest.fixture
def exporter():
    return InMemorySpanExporter()


@pytest.fixture
def tracers(exporter):
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield provider
    provider.shutdown()


@pytest.fixture
def reader():
    return InMemoryMetricReader()


@pytest.fixture
def meters(reader):
    provider = MeterProvider(metric_readers=[reader])
    yield provider
    provider.shutdown()


@pytest.fixture
def hook(tracers, meters):
    return OpenTelemetryHook(broker="amqp", tracer_provider=tracers, meter_provider=meters)
