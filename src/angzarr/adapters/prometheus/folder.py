"""Folder: where each process of a worker leaves its snapshot, and the parent adds them up.

One file a process, replaced as a whole. The folder is private: nobody else writes there.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

from angzarr.adapters.prometheus.snapshot import MetricsSnapshot

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

    def __init__(self, parent: str | None = None) -> None:
        sweep(parent)
        self.path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=parent))
        self._pid = os.getpid()
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
        """Tell whether a process said so."""
        return (self.path / _ELSEWHERE).exists()

    def total(self) -> MetricsSnapshot:
        """Return what all processes but this one have measured, those that ended as well.

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
        """Return what a living process left; of one that has ended nothing, it is kept here."""
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
    """Tell whether the process that left *name* runs; another may have its number by now."""
    pid, _, started = name.partition("-")
    return _started(int(pid)) == started if pid.isdigit() else False


def _started(pid: int) -> str:
    """Return when process *pid* started, in the kernel's words; empty: it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in ("Z", "X") else fields[_STARTED]
