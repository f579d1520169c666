"""AnalysisHealth: what an analysis worker answers to probes, from what its own rounds met.

It asks no server: each round asks the ledger, the dead-letter queue and the broker anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from angzarr.analysis.worker.worker import AnalysisWorker
from angzarr.errors import (
    BrokerUnavailable,
    DeadLetterQueueUnavailable,
    LedgerUnavailable,
)
from angzarr.runtime.health_report import Condition, Report, since

#: What a round needs → what its duties raise where that is away.
_NEEDED: Final = {
    "ledger": LedgerUnavailable,
    "dead_letters": DeadLetterQueueUnavailable,
    "broker": BrokerUnavailable,
}


class AnalysisHealth:
    """Tells of one analysis worker; asked from any thread."""

    def __init__(
        self, worker: AnalysisWorker, *, stalled_after: float, stopping: Callable[[], bool]
    ) -> None:
        self._worker = worker
        self._stalled_after = stalled_after
        self._stopping = stopping

    def live(self) -> Report:
        """Tell whether its rounds go on; a server that is away stops none of them."""
        still = self._worker.pulse.age()
        if self._stopping():
            return Report(
                "live", [Condition("rounds", holds=True, says="it ends its round and stops")]
            )
        says = f"they went on {since(still)} ago"
        return Report("live", [Condition("rounds", holds=still <= self._stalled_after, says=says)])

    def ready(self) -> Report:
        """Tell whether its last round reached all that it needs."""
        stops, failed = self._stopping(), self._worker.failed
        running = Condition(
            "running", holds=not stops, says="it stops" if stops else "it is not stopping"
        )
        if failed is None:
            return Report(
                "ready", [running, Condition("rounds", holds=False, says="the first goes on")]
            )
        needed = [_reached(name, kind, failed) for name, kind in _NEEDED.items()]
        return Report("ready", [running, *needed, _others(failed)])


def _reached(name: str, kind: type[Exception], failed: Mapping[str, Exception]) -> Condition:
    waits = [duty for duty, error in failed.items() if isinstance(error, kind)]
    says = f"away: {', '.join(waits)} wait" if waits else "the last round met no error of it"
    return Condition(name, holds=not waits, says=says)


def _others(failed: Mapping[str, Exception]) -> Condition:
    """Return the condition of what failed otherwise; the log says why, which may hold anything."""
    known = tuple(_NEEDED.values())
    waits = {duty: error for duty, error in failed.items() if not isinstance(error, known)}
    says = ", ".join(f"{duty} wait ({type(error).__name__})" for duty, error in waits.items())
    return Condition("duties", holds=not waits, says=says or "none failed")
