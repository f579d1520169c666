"""Last starts: an event that may kill its process is told from those that ran beside it (4)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from angzarr.delivery.delivery import Delivery
from angzarr.delivery.hold import Hold
from angzarr.delivery.outcome import Outcome, Postponed
from angzarr.resilience.idempotency import IdempotencyStore, Release

#: How long an event waits beside whose last start another's runs.
WAIT = timedelta(seconds=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class LastStarts:
    """One at a time in each process."""

    store: IdempotencyStore
    hold: Hold
    #: Held by the event whose last start runs.
    _running: threading.Lock = field(default_factory=threading.Lock)

    def alone(self, delivery: Delivery, run: Callable[[], Outcome]) -> Outcome:
        """Return what *run* returns, which runs beside no other last start of this process.

        Whatever ran beside an event that kills its process has its starts too. Who must wait
        waits as for an event in other hands, its claim given back.
        """
        if not self._running.acquire(blocking=False):
            release = Release(counted=False, was_counted=not delivery.rides)
            self.hold.until_done(
                lambda: self.store.settle(delivery.key, delivery.token, release),
                what="give its claim back",
                delivery=delivery,
            )
            return Postponed(delay=WAIT, why="last start", claimed=False)
        try:
            return run()
        finally:
            self._running.release()
