"""Metrics of dead letters on their way: which target took them, and what waits in the spool."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

from angzarr.adapters.opentelemetry.propagation import SCOPE
from angzarr.dead_letters.forwarding import SpoolTally
from angzarr.errors import Unavailable

#: Seconds; a reader asks for all gauges at once.
_KNOWN_FOR: Final = 1.0
_GAUGES: Final[dict[str, tuple[str, Callable[[SpoolTally, datetime], float]]]] = {
    "dlq_spool_letters": ("Letters that wait in the spool", lambda tally, _: tally.letters),
    "dlq_spool_bytes": ("Bytes in the spool, what is set aside included", lambda t, _: t.size),
    "dlq_spool_oldest_age_seconds": (
        "How long the oldest letter has waited in the spool",
        lambda tally, now: _age(tally.oldest_at, now),
    ),
    "dlq_spool_refused": ("Letters set aside that no queue takes", lambda tally, _: tally.refused),
    "dlq_spool_damaged": ("Files set aside that are not letters", lambda tally, _: tally.damaged),
}


class LetterMeters:
    """The counters; each letter is counted by the process that put or forwarded it."""

    def __init__(self, provider: MeterProvider | None = None) -> None:
        self._tally: Callable[[], SpoolTally] | None = None
        self._meter = metrics.get_meter(SCOPE, meter_provider=provider)
        self._put = self._meter.create_counter(
            "dlq_letters_put", description="Dead letters that a target confirmed"
        )
        self._forwarded = self._meter.create_counter(
            "dlq_letters_forwarded", description="Dead letters that left the spool for a target"
        )

    def confirmed(self, target: str, count: int) -> None:
        """Count letters that *target* took."""
        self._put.add(count, {"target": target})

    def forwarded(self, target: str, count: int) -> None:
        """Count letters that *target* took from the spool."""
        self._forwarded.add(count, {"target": target})

    def observe(self, tally: Callable[[], SpoolTally], now: Callable[[], datetime]) -> None:
        """Tell what *tally* counts in the spool, each time that somebody asks."""
        observed, self._tally = self._tally is not None, _Remembered(tally)
        if observed:  # an earlier worker of this process has made the gauges
            return
        for name, (description, value) in _GAUGES.items():
            self._meter.create_observable_gauge(
                name,
                callbacks=[_callback(lambda: self._tally, now, value)],
                description=description,
            )


class _Remembered:
    """Counts once for all the gauges that are asked together."""

    def __init__(self, tally: Callable[[], SpoolTally]) -> None:
        self._tally = tally
        self._known: SpoolTally | None = None
        self._until = 0.0

    def __call__(self) -> SpoolTally:
        if self._known is None or time.monotonic() >= self._until:
            self._known = self._tally()
            self._until = time.monotonic() + _KNOWN_FOR
        return self._known


def _callback(
    kept: Callable[[], Callable[[], SpoolTally] | None],
    now: Callable[[], datetime],
    value: Callable[[SpoolTally, datetime], float],
) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(_options: CallbackOptions) -> Iterable[Observation]:
        tally = kept()
        try:
            return [] if tally is None else [Observation(value(tally(), now()))]
        except Unavailable:  # the forwarder says so
            return []

    return observe


def _age(oldest_at: datetime | None, now: datetime) -> float:
    return max((now - oldest_at).total_seconds(), 0.0) if oldest_at else 0.0
