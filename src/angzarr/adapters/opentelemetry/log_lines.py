"""The metric of log lines that could not be written."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

from angzarr.adapters.opentelemetry.propagation import SCOPE


def show_lost_lines(lines: Callable[[], int], provider: MeterProvider | None = None) -> None:
    """Show *lines*, the count of a whole process tree: its parent shows it, and no child."""
    parent = os.getpid()

    def observe(_options: CallbackOptions) -> Iterable[Observation]:
        return [Observation(lines())] if os.getpid() == parent else []

    metrics.get_meter(SCOPE, meter_provider=provider).create_observable_counter(
        "log_lines_lost", callbacks=[observe], description="Log lines that could not be written"
    )
