"""Marking: the ledger's conditional changes of one entry, for every adapter that can change one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import datetime, timedelta

from angzarr.analysis import transition
from angzarr.analysis.entry import Entry, Status
from angzarr.analysis.transition import Change


class Marking(ABC):
    """The verbs of `Ledger` that change one entry if it is still what the caller thinks it is."""

    @abstractmethod
    def _change(
        self, entry_id: str, change: Callable[[Entry, datetime], Change | None], /
    ) -> Entry | None:
        """Apply *change* to an entry atomically; None where there is none or it may not change."""

    def mark_retrying(
        self, entry_id: str, replay: int, *, revision: int, by: str, lease: timedelta
    ) -> Entry | None:
        """Begin a replay of an entry that did not change since."""

        def change(entry: Entry, now: datetime) -> Change | None:
            if entry.revision != revision:
                return None
            return transition.retrying(entry, replay, now, by, lease)

        return self._change(entry_id, change)

    def mark_published(self, entry_id: str, replay: int, *, answer_by: datetime) -> bool:
        """Note that the replay under way is with the broker."""
        changed = self._change(
            entry_id, lambda entry, now: transition.published(entry, replay, now, answer_by)
        )
        return changed is not None

    def mark_answered(
        self, entry_id: str, replay: int, *, by: str, status: Status = Status.RESOLVED
    ) -> bool:
        """Close an entry whose last replay ended well."""
        changed = self._change(
            entry_id, lambda entry, now: transition.answered(entry, replay, now, by, status)
        )
        return changed is not None

    def mark_resolved(self, entry_id: str, resolved_by: str) -> bool:
        """Close an entry on a person's word."""
        changed = self._change(
            entry_id, lambda entry, now: transition.resolved(entry, now, resolved_by)
        )
        return changed is not None
