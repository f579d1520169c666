"""MemoryRejectionLog: what became of rejected commands, in one process."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from angzarr.sagas.log import (
    CLOSED,
    AskedAgain,
    Case,
    CaseFilter,
    RejectionLog,
    asked_again,
    fits,
    noted,
)


class MemoryRejectionLog(RejectionLog):
    """Cases in a dictionary."""

    def __init__(self) -> None:
        self._cases: dict[str, Case] = {}
        self._lock = threading.Lock()

    def note(self, case: Case, /) -> Case:
        """Keep *case*."""
        with self._lock:
            self._cases[case.id] = kept = noted(self._cases.get(case.id), case)
            return kept

    def ask_again(self, id: str, asked: AskedAgain, /) -> Case | None:
        """Count that the source is asked again."""
        with self._lock:
            kept = self._cases.get(id)
            if kept is None:
                return None
            self._cases[id] = told = asked_again(kept, asked)
            return told

    def look(self, id: str, /) -> Sequence[Case]:
        """Return the cases whose id begins so, two at most."""
        with self._lock:
            found = sorted((key for key in self._cases if key.startswith(id)), key=len)
            return [self._cases[key] for key in found[:2]]

    def cases(
        self, wanted: CaseFilter, /, *, limit: int, before: tuple[datetime, str] | None = None
    ) -> Sequence[Case]:
        """Return cases, the newest first."""
        with self._lock:
            found = [case for case in self._cases.values() if fits(case, wanted)]
        found.sort(key=lambda case: (case.rejected_at, case.id), reverse=True)
        later = [c for c in found if before is None or (c.rejected_at, c.id) < before]
        return [replace(case, rejection=None) for case in later[:limit]]

    def prune(self, before: datetime, /, *, limit: int) -> int:
        """Remove closed cases that did not change since *before*."""
        with self._lock:
            cases = self._cases.values()
            gone = [case.id for case in cases if case.status in CLOSED and case.changed_at < before]
            for one in gone[:limit]:
                del self._cases[one]
        return len(gone[:limit])

    def close(self) -> None:
        """Do nothing: what is here is kept."""
