"""An SDK of each test's own, without touching the process's providers."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from angzarr.adapters.opentelemetry.traces import OpenTelemetryHook


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


@pytest.fixture
def metrics(reader):
    """Return all metrics that have data, by name."""

    def metrics():
        data = reader.get_metrics_data()
        return {
            metric.name: metric
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    return metrics


@pytest.fixture
def points(metrics):
    """Return the points of a metric by their label's value: several in a tuple, None for none."""

    def points(name, *labels):
        found = metrics()
        given = {}
        for point in found[name].data.data_points if name in found else ():
            assert point.attributes.keys() == set(labels)
            values = tuple(point.attributes[label] for label in labels)
            given[values if len(values) > 1 else next(iter(values), None)] = point
        return given

    return points


@pytest.fixture
def read(points):
    """Return the values of a metric in the same way."""

    def read(name, *labels):
        return {key: point.value for key, point in points(name, *labels).items()}

    return read
