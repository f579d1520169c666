"""Metrics of dead letters (specs O1, A5): on their way, in queues, in the spool and in the ledger.

Lines that the log lost are counted here, too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Final

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

from angzarr.adapters.opentelemetry.meters import SCOPE, label
from angzarr.clock import Clock, SystemClock
from angzarr.dead_letters.depth import QueueDepth
from angzarr.dead_letters.spool_forwarder import SpoolTally
from angzarr.errors import Unavailable

if TYPE_CHECKING:  # a worker has other meters of these, and no analysis
    from angzarr.analysis.alerts.alert import Alert
    from angzarr.analysis.alerts.alert_raiser import Depth

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
        """Report the counts of *tally* for the spool at each collection."""
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


_Depths = Callable[[], Mapping[str, QueueDepth]]
_Value = Callable[[QueueDepth, datetime], float | None]


def _age_of_queue(depth: QueueDepth, now: datetime) -> float | None:
    if depth.waiting and depth.oldest_at is None:  # the queue does not tell
        return None
    return _age(depth.oldest_at if depth.waiting else None, now)


_QUEUE_GAUGES: Final[dict[str, tuple[str, _Value]]] = {
    "dlq_depth": ("Letters that wait in the dead-letter queue", lambda depth, _: depth.waiting),
    "dlq_oldest_age_seconds": ("How long the oldest letter has waited in its queue", _age_of_queue),
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
        """Report *depths* at each collection; *reads*: an analysis worker."""
        observed, self._depths = self._depths is not None, depths
        if observed:  # an earlier worker of this process has made the gauges
            return
        for name, (description, value) in _QUEUE_GAUGES.items():
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


def show_lost_lines(lines: Callable[[], int], provider: MeterProvider | None = None) -> None:
    """Show *lines*, the count of a whole process tree: its parent shows it, and no child."""
    parent = os.getpid()

    def observe(_options: CallbackOptions) -> Iterable[Observation]:
        return [Observation(lines())] if os.getpid() == parent else []

    metrics.get_meter(SCOPE, meter_provider=provider).create_observable_counter(
        "log_lines_lost", callbacks=[observe], description="Log lines that could not be written"
    )


class AlertMeters:
    """Counts alerts and their deliveries in the process that did it; shows the last depths."""

    def __init__(self, provider: MeterProvider | None = None, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._depth: Depth | None = None
        meter = metrics.get_meter(SCOPE, meter_provider=provider)
        self._raised = meter.create_counter("dlq_alerts", description="Alerts that were raised")
        self._tried = meter.create_counter(
            "dlq_alert_deliveries", description="Tries to deliver an alert to a sink"
        )
        meter.create_observable_gauge(
            "dlq_open_entries",
            callbacks=[self._callback(_entries)],
            description="Open entries of the ledger",
        )
        meter.create_observable_gauge(
            "dlq_oldest_open_age_seconds",
            callbacks=[self._callback(_age_of_entries)],
            description="How long ago the oldest open entry failed first",
        )

    def raised(self, alert: Alert) -> None:
        """Count an alert; the end of a cause is none."""
        if not alert.resolved:
            self._raised.add(1, {"kind": alert.kind.value, "severity": alert.severity.value})

    def tried(self, sink: str, outcome: str) -> None:
        """Count a try."""
        self._tried.add(1, {"sink": sink, "outcome": outcome})

    def show(self, depth: Depth) -> None:
        """Show *depth* until the next one."""
        self._depth = depth

    def _callback(
        self, values: Callable[[Depth, datetime], list[Observation]]
    ) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(_options: CallbackOptions) -> Iterable[Observation]:
            return [] if self._depth is None else values(self._depth, self._clock.now())

        return observe


def _entries(depth: Depth, _now: datetime) -> list[Observation]:
    return [
        Observation(count, {"domain": domain, "class": kind or "unclassified"})
        for (domain, kind), count in depth.open_entries.items()
    ]


def _age_of_entries(depth: Depth, now: datetime) -> list[Observation]:
    return [Observation(_age(depth.oldest_at, now))]
