"""Metrics of the dead-letter queues (spec O1), and of who reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Final

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

from angzarr.adapters.opentelemetry.labels import label
from angzarr.adapters.opentelemetry.propagation import SCOPE
from angzarr.dead_letters.depth import QueueDepth

_Depths = Callable[[], Mapping[str, QueueDepth]]
_Value = Callable[[QueueDepth, datetime], float | None]


def _age(depth: QueueDepth, now: datetime) -> float | None:
    if depth.waiting == 0:
        return 0.0
    if depth.oldest_at is None:  # the queue does not tell
        return None
    return max((now - depth.oldest_at).total_seconds(), 0.0)


_GAUGES: Final[dict[str, tuple[str, _Value]]] = {
    "dlq_depth": ("Letters that wait in the dead-letter queue", lambda depth, _: depth.waiting),
    "dlq_oldest_age_seconds": ("How long the oldest letter has waited in its queue", _age),
    "dlq_messages_total": (
        "Letters that the dead-letter queue keeps, read or not",
        lambda depth, _: depth.kept,
    ),
}


class DepthMeters:
    """Tells what was last heard of the queues; one for each process."""

    def __init__(self, provider: MeterProvider | None = None) -> None:
        self._depths: _Depths | None = None
        self._meter = metrics.get_meter(SCOPE, meter_provider=provider)

    def observe(self, depths: _Depths, now: Callable[[], datetime], *, reads: bool) -> None:
        """Tell what *depths* returns, each time that somebody asks; *reads*: an analysis worker."""
        observed, self._depths = self._depths is not None, depths
        if observed:  # an earlier worker of this process has made the gauges
            return
        for name, (description, value) in _GAUGES.items():
            self._meter.create_observable_gauge(
                name, callbacks=[self._callback(now, value)], description=description
            )
        if reads:
            self._meter.create_observable_gauge(
                "dlq_analysis_worker_up",
                callbacks=[lambda _options: [Observation(1)]],
                description="1 for each analysis worker that runs",
            )

    def _callback(
        self, now: Callable[[], datetime], value: _Value
    ) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(_options: CallbackOptions) -> Iterable[Observation]:
            told, at = self._depths() if self._depths else {}, now()
            found = [(domain, value(depth, at)) for domain, depth in told.items()]
            return [
                Observation(number, {"domain": label(domain)})
                for domain, number in found
                if number is not None
            ]

        return observe
