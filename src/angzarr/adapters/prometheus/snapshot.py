"""Snapshot: what one process has measured, how several are added up, and their Prometheus text.

prometheus_client's multiprocess mode does not serve here: it keeps only its own metric objects,
while we measure through OpenTelemetry's API, and it runs no custom collectors or callbacks in
children. All our observable gauges would be lost.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from opentelemetry.sdk.metrics.export import Gauge, Histogram, MetricsData, Sum
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

#: Names and values of labels, by name.
Labels: TypeAlias = tuple[tuple[str, str], ...]

COUNTER: Final = "counter"
#: What may fall again (an up-down counter): it ends with its process.
LEVEL: Final = "level"
GAUGE: Final = "gauge"
HISTOGRAM: Final = "histogram"
#: Series of one metric, over all processes and those that ended: as many as an SDK keeps.
MOST: Final = 2000
#: The labels of what is beyond that, as the SDK has them.
OVERFLOW: Final[Labels] = (("otel.metric.overflow", "true"),)
#: What a process leaves behind when it ends.
_LASTING: Final = (COUNTER, HISTOGRAM)


@dataclass(slots=True)
class Series:
    """One metric: its values by labels.

    A histogram's value is the count of each bucket, the last without an upper bound, and the sum.
    """

    kind: str
    about: str
    bounds: tuple[float, ...] = ()
    points: dict[Labels, list[float]] = field(default_factory=dict)

    def add(self, other: Series) -> None:
        """Add the values of another process; the greater one of two gauges counts.

        What has other buckets is of another release, and left out.
        """
        if (other.kind, other.bounds) != (self.kind, self.bounds):
            return
        for labels, values in other.points.items():
            at = labels if labels in self.points or len(self.points) < MOST else OVERFLOW
            known = self.points.get(at)
            if known is None:
                self.points[at] = list(values)
            elif self.kind == GAUGE:
                known[0] = max(known[0], values[0])
            else:
                known[:] = [one + more for one, more in zip(known, values, strict=True)]


@dataclass(slots=True)
class MetricsSnapshot:
    """The metrics of a process, or of several, by name."""

    series: dict[str, Series] = field(default_factory=dict)

    def add(self, other: MetricsSnapshot, *, ended: bool = False) -> None:
        """Add what another process measured; of one that has *ended* only what lasts."""
        for name, found in other.series.items():
            if ended and found.kind not in _LASTING:
                continue
            known = self.series.get(name)
            if known is None:
                known = self.series[name] = Series(found.kind, found.about, found.bounds)
            known.add(found)

    def to_json(self) -> bytes:
        """What `from_json` reads."""
        parts = {
            name: [one.kind, one.about, one.bounds, list(one.points.items())]
            for name, one in self.series.items()
        }
        return json.dumps(parts).encode()

    @classmethod
    def from_json(cls, raw: bytes) -> MetricsSnapshot:
        """Read what `to_json` wrote; raises ValueError for anything else."""
        try:
            return cls({name: _series(*parts) for name, parts in json.loads(raw).items()})
        except (TypeError, AttributeError) as error:
            raise ValueError(str(error)) from error


def _series(kind: str, about: str, bounds: list[float], points: list[Any]) -> Series:
    return Series(
        kind,
        about,
        tuple(bounds),
        {tuple((name, text) for name, text in labels): values for labels, values in points},
    )


def snapshot_of(data: MetricsData | None) -> MetricsSnapshot:
    """What an SDK's reader found, whose counts go on from the start of the process."""
    taken = MetricsSnapshot()
    for metric in _metrics(data):
        if (series := _read(metric)) is not None:
            known = taken.series.setdefault(metric.name, series)
            if known is not series:  # two scopes have one name
                known.add(series)
    return taken


def _metrics(data: MetricsData | None) -> Iterator[Any]:
    for resource in data.resource_metrics if data is not None else ():
        for scope in resource.scope_metrics:
            yield from scope.metrics


def _read(metric: Any) -> Series | None:
    data, about = metric.data, metric.description or ""
    if isinstance(data, Histogram):
        return _histogram(data, about)
    if isinstance(data, Sum):
        kind = COUNTER if data.is_monotonic else LEVEL
    elif isinstance(data, Gauge):
        kind = GAUGE
    else:  # an exponential histogram, which is never made here
        return None
    points = {_labels(one.attributes): [float(one.value)] for one in data.data_points}
    return Series(kind, about, points=points)


def _histogram(data: Histogram, about: str) -> Series | None:
    found = list(data.data_points)
    if not found:
        return None
    points = {_labels(one.attributes): [*map(float, one.bucket_counts), one.sum] for one in found}
    return Series(HISTOGRAM, about, tuple(found[0].explicit_bounds), points)


def _labels(attributes: Any) -> Labels:
    items: Iterable[tuple[str, Any]] = (attributes or {}).items()
    return tuple(sorted((str(name), _text(value)) for name, value in items))


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


#: What the text is, for the answer's header: what every Prometheus reads.
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_ODD: Final = re.compile(r"[^a-zA-Z0-9_]")


def text_of(snapshot: MetricsSnapshot) -> bytes:
    """*snapshot* in Prometheus's text format; counters get their ``_total`` here."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_SnapshotCollector(snapshot))
    return generate_latest(registry)


class _SnapshotCollector(Collector):
    def __init__(self, snapshot: MetricsSnapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        for name, series in sorted(self._snapshot.series.items()):
            yield _family(_ODD.sub("_", name), series)


def _family(name: str, series: Series) -> Metric:
    about = series.about or name
    if series.kind == HISTOGRAM:
        return _histogram_family(name, about, series)
    counts = series.kind == COUNTER
    metric = CounterMetricFamily(name, about) if counts else GaugeMetricFamily(name, about)
    sample = f"{metric.name}_total" if counts else name
    for labels, (value,) in sorted(series.points.items()):
        metric.add_sample(sample, _named(labels), value)
    return metric


def _histogram_family(name: str, about: str, series: Series) -> Metric:
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
