"""PoolHealth: the probes of all processes of one supervisor, as one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final

from angzarr.runtime.health_report import Condition, Heartbeat, Report, since
from angzarr.supervisor.process_plan import first_of

#: Seconds that a process may be missing before the whole is not ready: a dead one is replaced.
SETTLED_WITHIN: Final = 10.0
#: Seconds after which the supervisor's own loop counts as stuck.
_STUCK_AFTER: Final = 30.0


class PoolHealth:
    """Written by the supervisor's loop, asked from any thread.

    It is live while the supervisor moves and at least one process is up, or was not long ago: the
    supervisor replaces a process that hangs, and the others need no restart for it. It is ready
    while every process is.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._wanted: Callable[[], int] = lambda: 1
        self._none_for = 0.0
        self._now = monotonic
        self._lock = threading.Lock()
        self._said: dict[int, dict[str, list[Condition]]] = {}
        self._short_since: float | None = monotonic()
        self._none_since: float | None = monotonic()
        self.pulse = Heartbeat(monotonic)
        self.stopping = False

    def watch(self, wanted: Callable[[], int], none_for: float) -> None:
        """Expect as many processes as are *wanted*, and none at all for *none_for* seconds."""
        self._wanted, self._none_for = wanted, none_for

    def say(self, number: int, words: dict[str, Any]) -> None:
        """Take note of what process *number* said of itself."""
        found = words.get("conditions")
        if not isinstance(found, dict):
            return
        with self._lock:
            self._said[number] = {
                probe: [Condition(*one) for one in conditions]
                for probe, conditions in found.items()
            }
            self._look()

    def end(self, number: int) -> None:
        """Take note that process *number* ended."""
        with self._lock:
            self._said.pop(number, None)
            self._look()

    def live(self) -> Report:
        """The report whether a restart of all would help."""
        with self._lock:
            self._look()
            gone = 0.0 if self._none_since is None else self._now() - self._none_since
            processes = self._processes(holds=self.stopping or gone <= self._none_for)
        still = self.pulse.age()
        loop = Condition("loop", holds=still <= _STUCK_AFTER, says=f"it moved {since(still)} ago")
        return Report("live", [loop, processes])

    def ready(self) -> Report:
        """The report whether all processes take messages and may run them."""
        with self._lock:
            self._look()
            short = self._short_since
            settles = short is None or self._now() - short <= SETTLED_WITHIN
            processes = self._processes(holds=bool(self._said) and settles)
            merged = self._merged("ready")
        running = Condition(
            "running",
            holds=not self.stopping,
            says="the worker stops" if self.stopping else "it is not stopping",
        )
        return Report("ready", [running, *merged, processes])

    def _merged(self, probe: str) -> list[Condition]:
        """Each condition once: it holds if it does in every process; the first that fails says."""
        merged: dict[str, Condition] = {}
        for number, probes in sorted(self._said.items()):
            for one in probes.get(probe, ()):
                if one.name == "running":
                    continue
                known = merged.get(one.name)
                if known is None or (known.holds and not one.holds):
                    says = one.says if one.holds else f"process {number}: {one.says}"
                    merged[one.name] = one._replace(says=says)
        return list(merged.values())

    def _processes(self, *, holds: bool) -> Condition:
        return Condition(
            "processes", holds=holds, says=f"{len(self._said)} of {self._wanted()} are up"
        )

    def _look(self) -> None:
        up, now = len(self._said), self._now()
        self._short_since = first_of(self._short_since, now) if up < self._wanted() else None
        self._none_since = None if up else first_of(self._none_since, now)
