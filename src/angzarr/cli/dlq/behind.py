"""What waits behind dead letters of ordered handlers: asked of the lanes, and never insisted on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Final

from angzarr.analysis.ledger.entry import Entry
from angzarr.ordering.lanes import Lanes
from angzarr.runtime.log_throttle import LogThrottle
from angzarr.wiring.application import Application
from angzarr.wiring.ordering import open_ordering

#: Seconds for which lanes that could not be asked are left alone: no page waits for them each time.
_LEFT_ALONE: Final = 30.0


class Behind:
    """Counts what waits behind entries; safe to use from threads. Asks nobody where none can."""

    def __init__(self, open_lanes: Callable[[], Lanes], asks: LogThrottle | None = None) -> None:
        self._open = open_lanes
        self._tries = asks or LogThrottle(_LEFT_ALONE)
        self._lanes: Lanes | None = None
        self._away = False
        self._lock = threading.Lock()

    def __call__(self, entries: Sequence[Entry]) -> Mapping[str, int]:
        """Return by id how many later events wait behind which of *entries*, in one question.

        An entry behind which nothing waits is left out, as all are where the lanes cannot be asked.
        """
        letters = {one.letter_id: one.id for one in entries if one.is_ordered}
        if not letters or (self._away and not self._tries.now()):
            return {}
        try:
            found = self._opened().behind(sorted(letters))
        except Exception:  # noqa: BLE001 - a page is about its entries, whatever becomes of lanes
            self._tries.now()
            self._away = True
            return {}
        self._away = False
        return {letters[one]: count for one, count in found.items() if one in letters and count > 0}

    def close(self) -> None:
        """Let connections go."""
        with self._lock:
            lanes, self._lanes = self._lanes, None
        if lanes is not None:
            lanes.close()

    def _opened(self) -> Lanes:
        with self._lock:
            if self._lanes is None:
                self._lanes = self._open()
            return self._lanes


def open_behind(app: Application, doors: ExitStack) -> Behind:
    """Return what counts for *app*; it connects when first asked about an ordered handler."""
    behind = Behind(lambda: open_ordering(app.settings, app.broker_url).lanes)
    doors.callback(behind.close)
    return behind
