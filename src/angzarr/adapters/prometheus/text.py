"""Text: metrics as Prometheus reads them, by its own library."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from angzarr.adapters.prometheus.snapshot import COUNTER, HISTOGRAM, Labels, MetricsSnapshot, Series

#: What the text is, for the answer's header: what every Prometheus reads.
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_ODD: Final = re.compile(r"[^a-zA-Z0-9_]")


def text_of(snapshot: MetricsSnapshot) -> bytes:
    """Return *snapshot* in Prometheus's text format; counters get their ``_total`` here."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Told(snapshot))
    return generate_latest(registry)


class _Told(Collector):
    def __init__(self, snapshot: MetricsSnapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        for name, series in sorted(self._snapshot.series.items()):
            yield _family(_ODD.sub("_", name), series)


def _family(name: str, series: Series) -> Metric:
    about = series.about or name
    if series.kind == HISTOGRAM:
        return _histogram(name, about, series)
    counts = series.kind == COUNTER
    metric = CounterMetricFamily(name, about) if counts else GaugeMetricFamily(name, about)
    sample = f"{metric.name}_total" if counts else name
    for labels, (value,) in sorted(series.points.items()):
        metric.add_sample(sample, _named(labels), value)
    return metric


def _histogram(name: str, about: str, series: Series) -> Metric:
    metric = HistogramMetricFamily(name, about)
    ends = [*map(str, map(float, series.bounds)), "+Inf"]
    for labels, values in sorted(series.points.items()):
        named, counts = _named(labels), list(itertools.accumulate(values[:-1]))
        for end, count in zip(ends, counts, strict=True):
            metric.add_sample(f"{name}_bucket", {**named, "le": end}, count)
        metric.add_sample(f"{name}_count", named, counts[-1])
        metric.add_sample(f"{name}_sum", named, values[-1])
    return metric


def _named(labels: Labels) -> dict[str, str]:
    return {_ODD.sub("_", name): text for name, text in labels}
