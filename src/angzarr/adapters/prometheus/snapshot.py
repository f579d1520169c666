"""Snapshot: all that one process has measured so far, and how several are added up.

prometheus_client's multiprocess mode does not serve here: it keeps only its own metric objects,
while we measure through OpenTelemetry's API, and it runs no custom collectors or callbacks in
children. All our observable gauges would be lost.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from opentelemetry.sdk.metrics.export import Gauge, Histogram, MetricsData, Sum

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
        """Return it as `from_json` reads it."""
        told = {
            name: [one.kind, one.about, one.bounds, list(one.points.items())]
            for name, one in self.series.items()
        }
        return json.dumps(told).encode()

    @classmethod
    def from_json(cls, raw: bytes) -> MetricsSnapshot:
        """Return what `to_json` wrote; raises ValueError for anything else."""
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
    """Return what an SDK's reader found, whose counts go on from the start of the process."""
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
    else:  # an exponential histogram, which nobody here makes
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
