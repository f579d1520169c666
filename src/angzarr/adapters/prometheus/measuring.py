"""Measuring: an OpenTelemetry SDK of this process's own, whose snapshots are left in a folder.

It is nobody's global provider: an SDK that the app sets up, now or later, is left alone.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.resources import Resource

from angzarr.adapters.prometheus.folder import Folder
from angzarr.adapters.prometheus.snapshot import MetricsSnapshot, snapshot_of
from angzarr.runtime.log_throttle import LogThrottle

_log = logging.getLogger("angzarr.health")

#: How often a process leaves its snapshot: what a killed one measured since is lost.
LEFT_EVERY: Final = timedelta(seconds=2)


class OfOneProcess(MeterProvider):
    """A provider that no child uses: there is nothing to renew after a fork.

    The SDK would look for the child's resource on a pool of threads, in the middle of the fork: a
    child hangs for ever if its parent imported `concurrent.futures.thread` after it made this.
    """

    def _handle_fork(self) -> None:
        """Do nothing."""


class Measuring:
    """One process's."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        # No resource: it would be found out in every child, and nothing of it is shown.
        self.provider = OfOneProcess(
            [self._reader], resource=Resource.get_empty(), shutdown_on_exit=False
        )
        self._seldom = LogThrottle()
        self._lock = threading.Lock()

    def snapshot(self) -> MetricsSnapshot:
        """Return what was measured so far."""
        return snapshot_of(self._reader.get_metrics_data())

    def leave(self, folder: Folder) -> None:
        """Leave a snapshot in *folder*. Never raises."""
        try:
            with self._lock:
                folder.leave(self.snapshot())
        except Exception as error:  # noqa: BLE001 - metrics must cost no message
            if self._seldom.now():
                _log.warning("metrics_not_left: %s", error)


class Leaving:
    """Turns: leaves snapshots of a child."""

    def __init__(self, leave: Callable[[], None]) -> None:
        self._leave = leave

    def turn(self) -> timedelta:
        """Leave one."""
        self._leave()
        return LEFT_EVERY

    def leave(self) -> None:
        """Leave the last."""
        self._leave()
