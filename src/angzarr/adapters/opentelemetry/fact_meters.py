"""Metrics of the relay that moves facts from the outbox to their sink (O1, F1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

from angzarr.adapters.opentelemetry.meters import SCOPE
from angzarr.facts.relay import RelayCounts


class FactMeters:
    """Tells of the relay of one worker, from its parent process."""

    def __init__(self, provider: MeterProvider | None = None) -> None:
        self._meter = metrics.get_meter(SCOPE, meter_provider=provider)

    def observe(self, counts: RelayCounts) -> None:
        """Report *counts* from now on."""
        self._meter.create_observable_gauge(
            "facts_waiting",
            callbacks=[_observing(lambda: counts.depth)],
            description="Facts in the outbox, told by the worker that moves them",
        )
        self._meter.create_observable_counter(
            "facts_moved",
            callbacks=[_observing(lambda: counts.moved)],
            description="Facts moved from the outbox to their place",
        )
        self._meter.create_observable_counter(
            "facts_dropped",
            callbacks=[_observing(lambda: counts.dropped)],
            description="Facts lost to a full outbox",
        )
        self._meter.create_observable_counter(
            "facts_refused",
            callbacks=[_observing(lambda: counts.refused)],
            description="Lines in the outbox that were no facts",
        )


Observing: TypeAlias = Callable[[CallbackOptions], Iterable[Observation]]


def _observing(
    read: Callable[[], int | None],
) -> Observing:
    def observe(_options: CallbackOptions) -> Iterable[Observation]:
        number = read()
        return [] if number is None else [Observation(number)]

    return observe
