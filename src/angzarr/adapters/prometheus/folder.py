"""Folder: where each process of a worker measures and leaves its snapshot; the parent adds them up.

One file a process, replaced as a whole. The folder is private: only this worker writes there.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Final

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.resources import Resource

from angzarr.adapters.prometheus.snapshot import MetricsSnapshot, snapshot_of
from angzarr.runtime.failures import LogThrottle

_log = logging.getLogger("angzarr.health")

_PREFIX: Final = "angzarr-metrics-"
_SUFFIX: Final = ".json"
#: Of one that is being written.
_FRESH: Final = ".new"
#: Left by a process whose metrics are in an SDK of the app's own.
_ELSEWHERE: Final = "elsewhere"
#: Where the start of a process stands in /proc, behind its name; its state stands first.
_STARTED: Final = 19


class Folder:
    """One worker's, made by its parent process and inherited by its children."""

    def __init__(self, parent: str | None = None, *, of: str | None = None) -> None:
        """A new folder under *parent*, or the one *of* another process, which removes it."""
        if of is None:
            sweep(parent)
            of = tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=parent)
            self._pid = os.getpid()
        else:
            self._pid = 0
        self.path = Path(of)
        self._ended = MetricsSnapshot()
        self._lock = threading.Lock()

    def leave(self, snapshot: MetricsSnapshot) -> None:
        """Write this process's snapshot over its last one; raises OSError."""
        name = f"{os.getpid()}-{_started(os.getpid())}"
        fresh = self.path / f"{name}{_FRESH}"
        fresh.write_bytes(snapshot.to_json())
        fresh.replace(self.path / f"{name}{_SUFFIX}")

    def leave_word(self) -> None:
        """Say that this process's metrics are elsewhere."""
        with suppress(OSError):
            (self.path / _ELSEWHERE).touch()

    def is_elsewhere(self) -> bool:
        """True if a process said so."""
        return (self.path / _ELSEWHERE).exists()

    def total(self) -> MetricsSnapshot:
        """What all processes but this one have measured, those that ended as well.

        Only the parent calls this; what ended processes left is kept in memory from then on.
        """
        with self._lock:
            for half in self.path.glob(f"*{_FRESH}"):
                if not _lives(half.stem):  # killed while it wrote
                    half.unlink(missing_ok=True)
            living = [self._take(file) for file in sorted(self.path.glob(f"*{_SUFFIX}"))]
            total = MetricsSnapshot()
            for one in (self._ended, *living):  # what ended keeps its place, where there are many
                total.add(one)
            return total

    def remove(self) -> None:
        """Remove it; does nothing in a child."""
        if os.getpid() == self._pid:
            shutil.rmtree(self.path, ignore_errors=True)

    def _take(self, file: Path) -> MetricsSnapshot:
        """What a living process left; what one that has ended left is kept here."""
        # Looked at first: what one that has ended left does not change any more.
        ended = not _lives(file.stem)
        try:
            found = MetricsSnapshot.from_json(file.read_bytes())
        except (OSError, ValueError) as error:
            _log.warning("metrics_unreadable: %s: %s", file.name, error)
            found = MetricsSnapshot()
        if not ended:
            return found
        with suppress(FileNotFoundError):
            file.unlink()
        self._ended.add(found, ended=True)
        return MetricsSnapshot()


def sweep(parent: str | None = None) -> None:
    """Remove what killed workers left, and an earlier one with the number of this process."""
    for path in Path(parent or tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        pid = path.name.removeprefix(_PREFIX).partition("-")[0]
        if pid.isdigit() and (int(pid) == os.getpid() or not Path(f"/proc/{pid}").exists()):
            shutil.rmtree(path, ignore_errors=True)


def _lives(name: str) -> bool:
    """True if the process that left *name* runs; another may have its number by now."""
    pid, _, started = name.partition("-")
    return _started(int(pid)) == started if pid.isdigit() else False


def _started(pid: int) -> str:
    """When process *pid* started, in the kernel's words; empty: it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in ("Z", "X") else fields[_STARTED]


#: How often a process leaves its snapshot: what a killed one measured since is lost.
LEFT_EVERY: Final = timedelta(seconds=2)


class UnforkedProvider(MeterProvider):
    """A provider that no child uses: there is nothing to renew after a fork.

    The SDK would look for the child's resource on a pool of threads, in the middle of the fork: a
    child hangs for ever if its parent imported `concurrent.futures.thread` after it made this.
    """

    def _handle_fork(self) -> None:
        """Do nothing."""


class ProcessMeter:
    """An OpenTelemetry SDK of one process's own, whose snapshots are left in a folder.

    It is not the global provider: an SDK that the app sets up, now or later, is left alone.
    """

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        # No resource: it would be found out in every child, and nothing of it is shown.
        self.provider = UnforkedProvider(
            [self._reader], resource=Resource.get_empty(), shutdown_on_exit=False
        )
        self._seldom = LogThrottle()
        self._lock = threading.Lock()

    def snapshot(self) -> MetricsSnapshot:
        """What was measured so far."""
        return snapshot_of(self._reader.get_metrics_data())

    def leave(self, folder: Folder) -> None:
        """Leave a snapshot in *folder*. Never raises."""
        try:
            with self._lock:
                folder.leave(self.snapshot())
        except Exception as error:  # noqa: BLE001 - metrics must cost no message
            if self._seldom.now():
                _log.warning("metrics_not_left: %s", error)


class SnapshotTurns:
    """The turns of a `PeriodicThread` in a child: each leaves a snapshot, and so does its end."""

    def __init__(self, leave: Callable[[], None]) -> None:
        self._leave = leave

    def turn(self) -> timedelta:
        """Leave one."""
        self._leave()
        return LEFT_EVERY

    def leave(self) -> None:
        """Leave the last."""
        self._leave()
